#!/bin/bash
# Names of ir/known.def and ir/inputs.def stand in no other file of src: whoever means such a Variable or input uses its handle, which cannot be
# misspelt. Allowed is the same word for something else: a node, an output of an op, an op, an operand of a kernel, a key of a file, a word of a
# recipe, an option. Rooms that see no graph are not searched.
# SOURCE: the repository.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
table=$SOURCE/src/ir/known.def
names=$(sed -nE 's/^(KNOWN_VARIABLE|INPUT)\([A-Z_]+, "([a-z_]+)".*/\2/p' "$table" "$SOURCE/src/ir/inputs.def" | sort -u | paste -sd'|')
prefixes=$(sed -nE 's/^KNOWN_OF\([A-Z_]+, "([a-z_]+)".*/\1/p' "$table" | paste -sd'|')
case $names in *loss*tokens*) ;; *) echo "FAILED: the table was not read: $names" && exit 1 ;; esac
case $prefixes in *gradient*dump*) ;; *) echo "FAILED: the table was not read: $prefixes" && exit 1 ;; esac

# Lines of a source folder that have one of the names or prefixes as a string, without comments and without the allowed uses.
literals() {
  (cd "$1" && grep -rnE "\"(($names)\"|($prefixes)[\".])" . --include=*.c --include=*.h --include=*.def) |
    grep -vE '^\./(serve|chat|grammar|check)/|^\./(ir/(known|inputs)\.def|recipe/(recipe[a-z_]*\.(c|def)|layouts\.def)):' |
    sed -E -e 's,//.*,,' -e "s/launch_(array|operand|bytes)\([^\"]*\"($names|$prefixes)\"//" \
      -e "s/(op_[a-z_]+|graph_output|graph_node)\([^\"]*\"($names|$prefixes)\"//g" \
      -e "s/(metrics_(real|integer)|add_field|json_object_get|json_object_set_new)\([^\"]*\"($names)\"//g" -e "s/json_pack\(.*//" \
      -e "s/g->scope = .*//" -e "s,^(\./op/[a-z_]+\.c:[0-9]+:) *\.name = .*,\1," \
      -e "s/\{\.name = \"($names)\",//" |
    grep -E "\"(($names)\"|($prefixes)[\".])"
}
# Calls that find a Variable by its name, outside the files where a name is data: graph.*, which has the list of names; bind.c and mirror.c, where
# a graph finds its Variables in the State of another; build.c, where graphs share parameters; model_source.c and huggingface_*.c, which are asked by name.
searches() {
  (cd "$1" && grep -rn 'graph_find_variable(' . --include=*.c --include=*.h) |
    grep -vE '^\./(ir/graph\.[ch]|runtime/(bind|mirror)\.c|model/build\.c|infer/model_source\.c|checkpoint/huggingface_(views|load)\.c):'
}

failures=0
if found=$(literals "$SOURCE/src"); then
  printf 'FAILED: names of ir/known.def as strings:\n%s\n' "$found"
  failures=1
fi
if found=$(searches "$SOURCE/src"); then
  printf 'FAILED: Variables that are looked for by name:\n%s\n' "$found"
  failures=1
fi

# The search itself can fail: each of these lines is found, and none of those.
expect_found() {
  mkdir -p "$work/src/runtime" && printf '%s\n' "$3" >"$work/src/runtime/planted.c"
  if "$2" "$work/src" >/dev/null; then [ "$1" = yes ]; else [ "$1" = no ]; fi || {
    printf 'FAILED: found should be %s: %s\n' "$1" "$3"
    failures=1
  }
}
expect_found yes literals '  double x = state_scalar(s, "loss"); // a comment'
expect_found yes literals '  if (!strcmp(v->name, "gradient_seed")) return 1;'
expect_found yes literals '  int t = graph_input(g, "tokens", DTYPE_I32, all);'
expect_found yes literals '  snprintf(left, sizeof left, "gradient.%s", name);'
expect_found yes literals '  int v = graph_variable_of(g, "dump", parameter, VARIABLE_METRIC);'
expect_found yes literals '  graph_bind(g, op_fill(g, "zero", 0), graph_variable(g, "skip", 1), -1);'
expect_found yes literals '  metrics_real(m, "loss_scale", state_scalar(s, "loss_scale"));'
expect_found yes searches '  int v = graph_find_variable(g, name);'
expect_found no literals '  // the Variable "loss"'
expect_found no literals '  int n = op_identity(g, "gradient", x);'
expect_found no literals '  metrics_real(m, "loss", s->loss);'
[ $failures = 0 ] && echo "no name of ir/known.def stands anywhere else"
exit $failures
