#!/bin/bash
# tier 2
# Shell completion as a user meets it: what bash, zsh and fish offer for parts of command lines. zsh and fish where they are installed.
. "$SOURCE/tests/script.sh" || exit 1
mkdir bin recipes && ln -s "$PLAIT" bin/plait && PATH=$work/bin:$PATH
touch recipes/mine.yaml 'a file.txt'
export PLAIT_CLUSTERS=$SOURCE/clusters

# offers SHELL LINE WORDS…: the candidates for the last word of the line are these, in any order
offers() {
  local shell=$1 line=$2 got wanted
  shift 2
  got=$("complete_$shell" "$line" | sort -u)
  wanted=$(printf '%s\n' "$@" | sort -u)
  [ "$got" = "$wanted" ] || fail "$shell offers for \"$line\": $(tr '\n' ' ' <<<"$got"); expected: $*"
}
# contains SHELL LINE WORD, and lacks SHELL LINE WORD
contains() { grep -qxF -- "$3" <<<"$("complete_$1" "$2")" || fail "$1 lacks $3 for \"$2\": $("complete_$1" "$2" | head -20 | tr '\n' ' ')"; }
lacks() { ! grep -qxF -- "$3" <<<"$("complete_$1" "$2")" || fail "$1 offers $3 for \"$2\""; }

for shell in bash zsh fish; do
  plait docs completion $shell >$shell.script || fail "no script for $shell"
done
"$PLAIT" docs completion tcsh 2>message && fail "a script for tcsh"
grep -q 'no completion for "tcsh"; there is for bash, zsh and fish' message || fail "$(cat message)"

# ---- bash ----
bash -n bash.script || fail "bash cannot read its script"
cat >bash.driver <<'BASH'
source ./bash.script
COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
_plait
((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
BASH
complete_bash() { bash bash.driver "$1"; }
offers bash 'plait tr' train
offers bash 'plait e' eval export explain
offers bash 'plait help do' docs doctor
contains bash 'plait ' help
offers bash 'plait export run --d' --dtype
offers bash 'plait export run --dtype ' fp32 bf16 fp16
offers bash 'plait export run --dtype=b' bf16
offers bash 'plait explain r.yaml --after par' partition
offers bash 'plait bench ' comm
offers bash 'plait train recipes/m' recipes/mine.yaml
offers bash 'plait tokenize a' 'a file.txt'
offers bash 'plait tokenize --tokenizer a' 'a file.txt'
offers bash 'plait tokenize --files-from a' 'a file.txt'
offers bash 'plait cluster dgx-2' dgx-2
offers bash 'plait cluster a' 'a file.txt' aws-p4d
lacks bash 'plait cluster x --what-if ' aws-p4d
offers bash 'plait train r.yaml parallel.z' parallel.zero=
offers bash 'plait train r.yaml parallel.zero=' 0 1 2 3
offers bash 'plait train r.yaml mesh.dp=2 parallel.pipeline=g' gpipe
offers bash 'plait train r.yaml run.work_stealing=' true false
offers bash 'plait train r.yaml model.config=rec' recipes
contains bash 'plait train r.yaml ' optimizer.lr=
lacks bash 'plait train r.yaml ' parallel.virtual=
contains bash 'plait eval run ' mesh.tp=
lacks bash 'plait eval run ' optimizer.lr=
offers bash 'plait doctor ' ''
offers bash 'plait nonsense ' ''

# every key that plait takes is offered, and every command
for key in $("$PLAIT" recipe --docs | sed -n 's/^| `\([a-z_.]*\)`.*/\1/p'); do
  grep -q " $key=\|'$key=" bash.script && grep -q "'$key:" zsh.script && grep -q " $key= " fish.script || fail "a script lacks the key $key"
done
for command in $("$PLAIT" --help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
  for shell in bash zsh fish; do grep -qw -- "$command" $shell.script || fail "$shell lacks the command $command"; done
  for option in $("$PLAIT" "$command" --help | sed -n '/^options:/,/^$/s/^  --\([a-z-]*\).*/\1/p'); do
    grep -q -- "--$option\b" bash.script && grep -q -- "--$option\b" zsh.script && grep -qE -- "-l $option\b" fish.script ||
      fail "a script lacks --$option of $command"
  done
done

# ---- zsh: a terminal with it, in which the line and a tab are typed ----
if command -v zsh >/dev/null; then
  zsh -n zsh.script || fail "zsh cannot read its script"
  cat >zsh.driver <<'ZSH'
zmodload zsh/zpty || exit 77
zpty z zsh -f -i
zpty -w z "PS1=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -d $PWD/zcompdump"
zpty -w z "source ./zsh.script; zstyle ':completion:*' list-prompt ''; zstyle ':completion:*:default' menu no"
# instead of inserting anything, each candidate is printed
zpty -w z "compadd() { local -a found; local f; if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd \"\$@\"; return; fi; builtin compadd -A found \"\$@\"; for f in \$found; do print -r -- \"<\$f>\" >>$PWD/zsh.found; done; builtin compadd \"\$@\" }"
zpty -w z "PS1=ready"
until zpty -r -t z part '*ready*' 2>/dev/null; do sleep 0.05; ((++tries > 200)) && exit 1; done
rm -f zsh.found
zpty -n -w z "$1"$'\t'
for ((i = 0; i < 40; i++)); do sleep 0.05; [[ -s zsh.found ]] && break; done
sleep 0.1
zpty -d z
ZSH
  complete_zsh() { rm -f zsh.found; zsh -f zsh.driver "$1" >zsh.log 2>&1; [ -e zsh.found ] && sed 's/^<\(.*\)>$/\1/' zsh.found; }
  offers zsh 'plait tra' train
  offers zsh 'plait export run --dtype ' fp32 bf16 fp16
  offers zsh 'plait cluster h2' h200-node
  offers zsh 'plait train r.yaml parallel.pipeline=g' gpipe
  contains zsh 'plait train r.yaml mesh.' mesh.tp
  lacks zsh 'plait eval run opt' optimizer.lr
else
  echo "zsh is not here: its completion is not tested"
fi

# ---- fish ----
if command -v fish >/dev/null; then
  fish -n fish.script || fail "fish cannot read its script"
  export HOME=$work XDG_CONFIG_HOME=$work XDG_DATA_HOME=$work
  complete_fish() { fish --no-config -c 'source ./fish.script; complete -C $argv[1]' "$1" 2>&1 | sed 's/\t.*//'; }
  offers fish 'plait tr' train
  offers fish 'plait help do' docs doctor
  offers fish 'plait export run --dty' --dtype
  offers fish 'plait export run --dtype ' fp32 bf16 fp16
  offers fish 'plait explain r.yaml --after par' partition
  offers fish 'plait train recipes/m' recipes/mine.yaml
  contains fish 'plait cluster aws' aws-p4d
  offers fish 'plait train r.yaml parallel.z' parallel.zero=
  offers fish 'plait train r.yaml parallel.pipeline=g' parallel.pipeline=gpipe
  offers fish 'plait train r.yaml model.config=rec' model.config=recipes/
  contains fish 'plait train r.yaml ' optimizer.lr=
  contains fish 'plait eval run ' mesh.tp=
  lacks fish 'plait eval run ' optimizer.lr=
else
  echo "fish is not here: its completion is not tested"
fi

finish
