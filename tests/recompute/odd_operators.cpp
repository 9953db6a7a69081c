#include "odd_operators.h"
