#!/bin/bash
# The rows of src/base/faults.def are such that scripts/mutants reads each: `make mutants` would else say so only after all other tests.
exec "$SOURCE/scripts/mutants" --table
