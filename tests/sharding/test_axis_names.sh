#!/bin/bash
# Names of axes (sharding/axes.def) stand in no other code of src: whoever means an axis uses its handle (AXIS_TP), which cannot be
# misspelt. Allowed are tables of settings, and the same word for something else: a key of a file, a feature, a column.
# SOURCE: the repository.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
names=$(sed -nE 's/^AXIS_(NAME|PART)\([A-Z_]+, "([a-z_]+)".*/\2/p' "$SOURCE/src/sharding/axes.def" | paste -sd'|')
case $names in *pp*tp_row*ulysses*) ;; *) echo "FAILED: the table was not read: $names" && exit 1 ;; esac

# Lines of a source folder that have one of the names as a string, without comments and without the allowed uses.
literals() {
  (cd "$1" && grep -rnE "\"($names)\"" . --include=*.c --include=*.h) |
    sed -E -e 's,//.*,,' -e "s/json_pack\(.*//" -e 's/^(\.\/foresight\/compare_json\.c:[0-9]+:) *"tp",.*/\1/' \
      -e 's/^(\.\/train\/plan_json\.c:[0-9]+:) *"pp", r->mesh.*/\1/' \
      -e 's/^(\.\/cmd\/simulate_timeline\.c:[0-9]+:).*"%s %d, simulated".*/\1/' \
      -e 's/^(\.\/foresight\/search_(space|bounds)\.c:[0-9]+:) *static const char \*const (kinds|outside)\[\].*/\1/' \
      -e 's/^(\.\/foresight\/search_space\.c:[0-9]+:).*t->kind, "ep".*/\1/' \
      -e 's/^(\.\/parallel\/parallel_context\.c:[0-9]+:).*"ulysses" : "ring".*/\1/' |
    grep -E "\"($names)\""
}

failures=0
if found=$(literals "$SOURCE/src"); then
  printf 'FAILED: names of sharding/axes.def as strings:\n%s\n' "$found"
  failures=1
fi

# The search itself can fail: each of these lines is found, and none of those.
expect_found() {
  mkdir -p "$work/src/runtime" && printf '%s\n' "$2" >"$work/src/runtime/planted.c"
  if literals "$work/src" >/dev/null; then [ "$1" = yes ]; else [ "$1" = no ]; fi || {
    printf 'FAILED: found should be %s: %s\n' "$1" "$2"
    failures=1
  }
}
expect_found yes '  int a = mesh_find(mesh, "tp"); // a comment'
expect_found yes '  if (!strcmp(mesh->axis[a].name, "dp_ep")) return 1;'
expect_found yes '  static const char *const order[] = {"dp", "cp"};'
expect_found no '  // the axis "tp"'
expect_found no '  json_pack("{s:i}", "pp", c);'
expect_found no '  int a = mesh_axis(mesh, AXIS_TP);'
[ $failures = 0 ] && echo "no name of sharding/axes.def stands anywhere else"
exit $failures
