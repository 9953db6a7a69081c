// The functions that read from or finish a stream, for what a rank of which the user sees nothing
// has to tell (rank_notices.h). They do what they do without us.

#include <stdio.h>

#include "next_function.h"
#include "rank_notices.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

decltype(&::fgetc) known_fgetc;
decltype(&::fgets) known_fgets;
decltype(&::getdelim) known_getdelim;
decltype(&::fflush) known_fflush;
decltype(&::fclose) known_fclose;

int read_letter(FILE* stream) {
  if (stream == stdin) note_input(0);
  return next_function(known_fgetc, "fgetc")(stream);
}

ssize_t read_to(char** line, size_t* size, int end, FILE* stream) {
  if (stream == stdin) note_input(0);
  return next_function(known_getdelim, "getdelim")(line, size, end, stream);
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE int fgetc(FILE* stream) { return read_letter(stream); }
SPILLWAY_VISIBLE int getc(FILE* stream) { return read_letter(stream); }
SPILLWAY_VISIBLE int getchar() { return read_letter(stdin); }

SPILLWAY_VISIBLE char* fgets(char* line, int size, FILE* stream) {
  if (stream == stdin) note_input(0);
  return next_function(known_fgets, "fgets")(line, size, stream);
}

SPILLWAY_VISIBLE ssize_t getdelim(char** line, size_t* size, int end, FILE* stream) {
  return read_to(line, size, end, stream);
}
SPILLWAY_VISIBLE ssize_t __getdelim(char** line, size_t* size, int end, FILE* stream) {
  return read_to(line, size, end, stream);
}
SPILLWAY_VISIBLE ssize_t getline(char** line, size_t* size, FILE* stream) {
  return read_to(line, size, '\n', stream);
}

SPILLWAY_VISIBLE int fflush(FILE* stream) {
  return noted(next_function(known_fflush, "fflush")(stream));
}
SPILLWAY_VISIBLE int fclose(FILE* stream) {
  return noted(next_function(known_fclose, "fclose")(stream));
}

}  // extern "C"
