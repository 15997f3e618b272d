"""The command `plait` of the wheel: gives way to the program that lies in the package."""
import os
import sys

from plait._command import PROGRAM


def main():
    os.execv(PROGRAM, ["plait"] + sys.argv[1:])


if __name__ == "__main__":
    main()
