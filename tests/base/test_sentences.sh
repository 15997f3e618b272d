#!/bin/bash
# tier 1
# Nobody decides by the wording of a sentence: what it says is in the fields of Error (base/error.h), of a notice or of the job's state.
# Looks for calls that search, compare or scan a sentence. A line of `exceptions` is a file, a piece of its line, and why it may.
exceptions='
src/foresight/compare.c|strncmp(sentence, path, n)|a row of a table has the judge'\''s sentence without its place; nothing follows from it
src/foresight/compare.c|strcspn(sentence, ";")|and without what could be done, which the row has no room for; nothing follows from it
src/tokenizer/tokenizer_corpus.c|strcmp(why, JSON_NO_OBJECT)|a constant of json_read.h, by which it says that the text is JSON and not an object
src/cmd/runs.c|strncmp(e->sentence, "stopped ", 8)|"stopped" is the state, which the line has already
'
names='(message|sentence|failure|cause|why)'
calls='(strn?(case)?cmp|str(case)?str|strr?chr|strspn|strcspn|strpbrk|strtok|strsep|sscanf|memmem|regexec)'
# A call whose first or second argument ends in such a name: error->message, f.sentence + 3, &e.message[n].
owner='([A-Za-z_]+(\[[^]]*\])?(->|\.))'
named="$calls\\(([^,()]*,)? *&?($owner*$names|$owner*(f|failure|found)(->|\\.)(words|how))(\\[[^]]*\\])?( *[-+] *[A-Za-z0-9_]+)*[,)]"
# And what looks for the words that begin a sentence, wherever it stands.
literal="$calls\\(.*\"(rank|step|failed|stopped) "

# Of the sources in a folder: "FILE:LINE:TEXT" of what reads a sentence and is not an exception.
found() {
  (cd "$1" && grep -rnE --include='*.c' --include='*.h' "$named|$literal" src) | while IFS=: read -r file line text; do
    excused=
    while IFS='|' read -r place piece why; do
      [ -n "$why" ] && [ "$file" = "$place" ] && [[ "$text" == *"$piece"* ]] && excused=1
    done <<<"$exceptions"
    [ -n "$excused" ] || echo "$file:$line:$text"
  done
}

failures=0
read_here=$(found "$SOURCE")
if [ -n "$read_here" ]; then
  echo "These lines read a sentence; what they look for should be a field (base/error.h):"
  echo "$read_here"
  failures=1
fi

# Each exception is one still.
while IFS='|' read -r place piece why; do
  [ -n "$why" ] || continue
  grep -qF -- "$piece" "$SOURCE/$place" || { echo "$place does not have \"$piece\" any more: drop the exception"; failures=1; }
done <<<"$exceptions"

# Planted lines that read a sentence are found, and others are not.
planted=$(mktemp -d) || exit 1
trap 'rm -rf "$planted"' EXIT
mkdir "$planted/src"
cat >"$planted/src/bad.c" <<'C'
if (strstr(error->message, "rank ")) return 1;
if (!strncmp(error.message, "run.comm", 8)) return 1;
if (sscanf(f->sentence, "rank %d on ", &named) == 1) return 1;
const char *colon = strchr(s->failure.words + 1, ':');
for (char *at = error->message; (at = strstr(message + 4, "rank ")); at++) count++;
if (!strcmp("it is full", w->error.message)) return 1;
if (strstr(failure, own)) return 1;
for (const char *at = text; (at = strstr(at, "rank ")); at++) count++;
if (sscanf(line, "failed %lld %n", &number, &at) == 1) return 1;
C
cat >"$planted/src/good.c" <<'C'
if (error->message[0]) fprintf(stderr, "plait: %s\n", error->message);
snprintf(text, sizeof text, "%s: %s", path, error->message);
if (n + strlen(f->words) + 4 < sizeof s->cause) return 1;
if (!strcmp(e->name, v->name) && e->code) return 1;
C
bad=$(found "$planted" | grep -c '^src/bad.c')
[ "$bad" = "$(wc -l <"$planted/src/bad.c")" ] || { echo "of the planted lines that read a sentence, $bad are found:"; found "$planted"; failures=1; }
good=$(found "$planted" | grep '^src/good.c')
[ -z "$good" ] || { echo "these do not read a sentence: $good"; failures=1; }
[ $failures = 0 ]
