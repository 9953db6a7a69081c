"""Small trainers in Python that know nothing of Spillway: python3 python_trainers.py NAME[,WORD]... ..."""
import autograd_trainers
import file_trainers
import memory_trainers
import net_trainers
import optimizer_trainers
import process_trainers
import refused_trainers
import start_trainers
from trainer_parts import main

MODULES = (autograd_trainers, file_trainers, memory_trainers, net_trainers, optimizer_trainers, process_trainers,
           refused_trainers, start_trainers)

if __name__ == "__main__":
    main({name: trainer for module in MODULES for name, trainer in vars(module).items()})
