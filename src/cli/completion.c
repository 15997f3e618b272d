// Shell completion from the tables of options, of commands and of recipe keys: bash, zsh and fish.
#include "cli/help.h"
#include "cli/manual.h"
#include "recipe/recipe_keys.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 8 }; // values of an integer key that are offered

static bool is_path(const RecipeKey *key) {
  return key->kind == RECIPE_PATH || key->kind == RECIPE_WORD_OR_PATH || key->kind == RECIPE_NAME_OR_PATH ||
         key->kind == RECIPE_CORPORA;
}

// Calls `each` with every value of a key that can be listed.
static void list_values(const RecipeKey *key, void (*each)(const RecipeKey *key, const char *value, FILE *out),
                        FILE *out) {
  for (const RecipeWord *w = key->words; w && w->name; w++)
    if (!w->later) each(key, w->name, out);
  if (key->kind == RECIPE_BOOL) each(key, "true", out), each(key, "false", out);
  if (key->has_auto || key->kind == RECIPE_AXIS_LIST) each(key, "auto", out);
  for (int i = (int)key->least; key->kind == RECIPE_INT && key->most - key->least < MOST_LISTED && i <= key->most; i++)
    each(key, (char[]){(char)('0' + i), 0}, out);
}

static bool offered(const RecipeKey *key, bool inference) {
  return inference ? key->inference : !key->generation;
}

// The doc's first sentence without backticks; `escaped` characters get a backslash.
static void put_sentence(const char *text, const char *escaped, FILE *out) {
  for (; *text && strncmp(text, ". ", 2) && !(*text == '.' && !text[1]); text++) {
    if (*text == '`') continue;
    if (strchr(escaped, *text)) putc('\\', out);
    putc(*text, out);
  }
}

static void put_words(const char *const *words, FILE *out) {
  for (int i = 0; words && words[i]; i++) fprintf(out, "%s%s", i ? " " : "", words[i]);
}

static const char *kind_of(const CommandHelp *help) {
  if (help->takes == TAKES_NOTHING && !help->first) return "nothing";
  if (help->first && help->takes != TAKES_FILES) return "words";
  return !help_takes_keys(help) ? "files" : help->takes == TAKES_RECIPE ? "recipe" : "model";
}

// ---- bash ----------------------------------------------------------------------------------------------------------

void help_print_bash(const CommandHelp *help, const Option *options, int count, FILE *out) {
  fprintf(out, "    %s)\n      takes=%s first='", help->name, kind_of(help));
  put_words(help->first, out);
  fputs("' flags='--help --version", out);
  for (int i = 0; i < count; i++)
    if (options[i].kind == OPTION_FLAG) fprintf(out, " --%s", options[i].name);
  fputs("'\n      valued='", out);
  for (int i = 0; i < count; i++)
    if (options[i].kind != OPTION_FLAG) fprintf(out, "%s--%s", i ? " " : "", options[i].name);
  fputs("'\n      case $option in\n", out);
  for (int i = 0; i < count; i++) {
    if (!options[i].words && !help_wants_file(&options[i])) continue;
    fprintf(out, "        --%s) values='", options[i].name);
    if (options[i].words) put_words(options[i].words, out);
    else fputs("/", out);
    fputs("' ;;\n", out);
  }
  fputs("      esac ;;\n", out);
}

static void put_word(const RecipeKey *key, const char *value, FILE *out) { fprintf(out, "%s ", value); }

static void print_bash_keys(const char *name, bool inference) {
  printf("  local %s='", name);
  for (int i = 0; i < recipe_key_count; i++)
    if (offered(&recipe_keys[i], inference)) printf("%s= ", recipe_keys[i].path);
  fputs("'\n", stdout);
}

static const char bash_head[] =
    "# bash completion of plait, made by `plait docs completion bash`.\n"
    "_plait_keys() {\n"
    "  case $1 in\n";
static const char bash_middle[] =
    "  esac\n"
    "}\n"
    "\n"
    "# Words of the command line so far; = does not part them.\n"
    "_plait() {\n"
    "  local line=${COMP_LINE:0:COMP_POINT} values='' option='' operands=0\n"
    "  local current=${line##*[[:space:]]} takes='' first='' flags='' valued='' words command i\n";
static const char bash_tail[] =
    "  read -ra words <<<\"${line%\"$current\"}\"\n"
    "  command=${words[1]-}\n"
    "  COMPREPLY=()\n"
    "  if [ ${#words[@]} -le 1 ]; then\n"
    "    case $current in\n"
    "      -*) values='--help --version' ;;\n"
    "      *) values=\"help $commands\" ;;\n"
    "    esac\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$current\")\n"
    "    return\n"
    "  fi\n"
    "  if [ \"$command\" = help ]; then\n"
    "    [ ${#words[@]} -gt 2 ] || mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$current\")\n"
    "    return\n"
    "  fi\n"
    "  _plait_command\n"
    "  for ((i = 2; i < ${#words[@]}; i++)); do\n"
    "    case ${words[i]} in\n"
    "      --*=*) ;;\n"
    "      -*) case \" $valued \" in *\" ${words[i]} \"*) i=$((i + 1)); [ $i -lt ${#words[@]} ] || option=${words[i - "
    "1]} ;; esac ;;\n"
    "      *) operands=$((operands + 1)) ;;\n"
    "    esac\n"
    "  done\n"
    "  local before='' also=''\n"
    "  case $current in\n"
    "    --*=*) option=${current%%=*} before=${current%%=*}= current=${current#*=} ;;\n"
    "  esac\n"
    "  if [ -n \"$option\" ]; then\n"
    "    _plait_command # again: now it knows the option\n"
    "  elif [[ $current == -* ]]; then\n"
    "    values=\"$flags $valued\"\n"
    "  elif [ $operands -eq 0 ] && [[ $takes == words ]]; then\n"
    "    values=$first\n"
    "  elif [[ $takes == files ]] || { [ $operands -eq 0 ] && [[ $takes == @(recipe|model) ]]; }; then\n"
    "    values=/\n"
    "    [ $operands -gt 0 ] || also=$first\n"
    "  elif [[ $takes == @(recipe|model) && $current == *=* ]]; then\n"
    "    _plait_keys \"${current%%=*}\"\n"
    "    before=${current%%=*}= current=${current#*=}\n"
    "  elif [[ $takes == @(recipe|model) ]]; then\n"
    "    values=$all_keys\n"
    "    [[ $takes == recipe ]] || values=$inference_keys\n"
    "    compopt -o nospace 2>/dev/null\n"
    "  fi\n"
    "  # Bash replaces only what follows =, unless = is taken out of COMP_WORDBREAKS.\n"
    "  [[ $COMP_WORDBREAKS != *=* ]] || before=''\n"
    "  if [ \"$values\" = / ]; then\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -f -W \"$also\" -P \"$before\" -- \"$current\")\n"
    "  else\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$values\" -P \"$before\" -- \"$current\")\n"
    "  fi\n"
    "}\n"
    "complete -F _plait plait\n";

static void print_bash(void) {
  fputs(bash_head, stdout);
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    printf("    %s) values='", key->path);
    if (is_path(key)) putchar('/');
    else list_values(key, put_word, stdout);
    fputs("' ;;\n", stdout);
  }
  fputs("  esac\n}\n\n_plait_command() {\n  case $command in\n", stdout);
  for (int i = 0; i < command_count; i++) command_print(&commands[i], "bash");
  fputs(bash_middle, stdout);
  print_bash_keys("all_keys", false);
  print_bash_keys("inference_keys", true);
  fputs("  local commands='", stdout);
  for (int i = 0; i < command_count; i++)
    if (*commands[i].summary) printf("%s%s", i ? " " : "", commands[i].name);
  fputs("'\n", stdout);
  fputs(bash_tail, stdout);
}

// ---- zsh -----------------------------------------------------------------------------------------------------------

static void put_zsh_option(const char *name, const char *text, FILE *out) {
  fprintf(out, " \\\n        '--%s[", name);
  for (; *text; text++) {
    if (strchr("[]:\\", *text)) putc('\\', out);
    if (*text == '\'') fputs("'\\'", out);
    putc(*text, out);
  }
  putc(']', out);
}

void help_print_zsh(const CommandHelp *help, const Option *options, int count, FILE *out) {
  const char *kind = kind_of(help);
  fprintf(out, "    %s)\n      _arguments -S", help->name);
  for (int i = 0; i < count; i++) {
    const Option *o = &options[i];
    // --name VALUE and --name=VALUE
    char *name = xformat("%s%s", o->name, o->kind == OPTION_FLAG ? "" : "=");
    put_zsh_option(name, o->help, out);
    free(name);
    if (o->kind != OPTION_FLAG) fprintf(out, ":%s:", o->argument);
    if (o->words) {
      putc('(', out);
      put_words(o->words, out);
      putc(')', out);
    } else if (help_wants_file(o)) fputs("_files", out);
    fputs("'", out);
  }
  put_zsh_option("help", "print this help and exit", out);
  fputs("'", out);
  put_zsh_option("version", "print plait's version and exit", out);
  fputs("'", out);
  if (!strcmp(kind, "words")) {
    fputs(" \\\n        '1:what:(", out);
    put_words(help->first, out);
    fputs(")'", out);
  }
  if (!strcmp(kind, "files") && help->first) {
    fputs(" \\\n        '1:name or file:{compadd -- ", out);
    put_words(help->first, out);
    fputs("; _files}'", out);
  } else if (!strcmp(kind, "files")) fputs(" \\\n        '*:file:_files'", out);
  if (!strcmp(kind, "recipe")) fputs(" \\\n        '1:recipe:_files' '*:key: _plait_keys all'", out);
  if (!strcmp(kind, "model"))
    fputs(" \\\n        '1:checkpoint, run or model folder:_files' '*:key: _plait_keys inference'", out);
  fputs(" ;;\n", out);
}

static void put_quoted(const char *text, const char *escaped, FILE *out) {
  char *sentence;
  size_t size;
  FILE *s = open_memstream(&sentence, &size);
  CHECK(s, "no memory");
  put_sentence(text, escaped, s);
  fclose(s);
  for (const char *c = sentence; *c; c++) fputs(*c == '\'' ? "'\\''" : (char[]){*c, 0}, out);
  free(sentence);
}

static void print_zsh_keys(const char *name, bool inference) {
  printf("  local -a %s=(\n", name);
  for (int i = 0; i < recipe_key_count; i++) {
    if (!offered(&recipe_keys[i], inference)) continue;
    printf("    '%s:", recipe_keys[i].path);
    put_quoted(recipe_keys[i].doc, ":\\", stdout);
    fputs("'\n", stdout);
  }
  fputs("  )\n", stdout);
}

static void print_zsh(void) {
  fputs("#compdef plait\n"
        "# zsh completion of plait, made by `plait docs completion zsh`.\n"
        "_plait_keys() {\n"
        "  if compset -P 1 '*='; then\n"
        "    local key=${IPREFIX%%=*}\n"
        "    case $key in\n", stdout);
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    if (is_path(key)) {
      printf("      %s) _files ;;\n", key->path);
      continue;
    }
    printf("      %s) compadd -- ", key->path);
    list_values(key, put_word, stdout);
    fputs(";;\n", stdout);
  }
  fputs("    esac\n    return\n  fi\n", stdout);
  print_zsh_keys("all_keys", false);
  print_zsh_keys("inference_keys", true);
  fputs("  _describe -V 'recipe key' ${1}_keys -S =\n"
        "}\n"
        "\n"
        "_plait() {\n"
        "  local -a commands=(\n", stdout);
  for (int i = 0; i < command_count; i++) {
    if (!*commands[i].summary) continue;
    printf("    '%s:", commands[i].name);
    put_quoted(commands[i].summary, ":\\", stdout);
    fputs("'\n", stdout);
  }
  fputs(
      "    'help:print the help of a command'\n"
      "  )\n"
      "  local curcontext=$curcontext state line\n"
      "  _arguments -C '(- *)--help[print help and exit]' '(- *)--version[print the version and exit]' '1: :->command' "
      "'*:: :->rest'\n"
      "  if [[ $state == command ]]; then\n"
      "    _describe -V command commands\n"
      "    return\n"
      "  fi\n"
      "  [[ $state == rest ]] || return\n"
      "  case $words[1] in\n"
      "    help) _describe -V command commands ;;\n",
      stdout);
  for (int i = 0; i < command_count; i++) command_print(&commands[i], "zsh");
  fputs("  esac\n}\n\n"
        "if [[ $funcstack[1] == _plait ]]; then _plait \"$@\"; else compdef _plait plait; fi\n", stdout);
}

// ---- fish ----------------------------------------------------------------------------------------------------------

static void put_fish_text(const char *text, FILE *out) {
  putc('\'', out);
  for (; *text; text++) {
    if (strchr("'\\", *text)) putc('\\', out);
    putc(*text, out);
  }
  putc('\'', out);
}

void help_print_fish(const CommandHelp *help, const Option *options, int count, FILE *out) {
  const char *kind = kind_of(help);
  for (int i = 0; i < count; i++) {
    const Option *o = &options[i];
    fprintf(out, "complete -c plait -n '__fish_seen_subcommand_from %s' -l %s", help->name, o->name);
    if (o->words) {
      fputs(" -x -a '", out);
      put_words(o->words, out);
      putc('\'', out);
    } else if (o->kind != OPTION_FLAG) fputs(help_wants_file(o) ? " -r -F" : " -x", out);
    fputs(" -d ", out);
    put_fish_text(o->help, out);
    putc('\n', out);
    if (o->kind == OPTION_FLAG) fprintf(out, "set -ga __plait_flags --%s\n", o->name);
  }
  if (!strcmp(kind, "files"))
    fprintf(out, "complete -c plait -n '__fish_seen_subcommand_from %s' -F\n", help->name);
  if (help->first) {
    fprintf(out, "complete -c plait -n '__fish_seen_subcommand_from %s' -a '", help->name);
    put_words(help->first, out);
    fputs("'\n", out);
  }
  if (strcmp(kind, "recipe") && strcmp(kind, "model")) return;
  fprintf(out, "complete -c plait -n '__fish_seen_subcommand_from %s; and test (__plait_operands) -eq 0' -F\n",
          help->name);
  fprintf(out,
          "complete -c plait -n '__fish_seen_subcommand_from %s; and test (__plait_operands) -gt 0' -a '(__plait_keys "
          "%s)'\n",
          help->name, !strcmp(kind, "recipe") ? "all" : "inference");
}

static void put_fish_value(const RecipeKey *key, const char *value, FILE *out) {
  fprintf(out, " %s=%s", key->path, value);
}

static const char fish_head[] =
    "# fish completion of plait, made by `plait docs completion fish`.\n"
    "complete -c plait -f\n"
    "set -g __plait_flags --help --version\n"
    "\n"
    "# How many operands stand after the command: words that are neither options nor their values.\n"
    "function __plait_operands\n"
    "    set -l count 0\n"
    "    set -l skip 0\n"
    "    for word in (commandline -opc)[3..-1]\n"
    "        if test $skip -eq 1\n"
    "            set skip 0\n"
    "        else if string match -q -- '--*=*' $word\n"
    "            continue\n"
    "        else if string match -q -- '-*' $word\n"
    "            contains -- $word $__plait_flags; or set skip 1\n"
    "        else\n"
    "            set count (math $count + 1)\n"
    "        end\n"
    "    end\n"
    "    echo $count\n"
    "end\n"
    "\n"
    "# The values of the key that is being written, as KEY=VALUE; else keys.\n"
    "function __plait_keys\n"
    "    set -l token (commandline -ct)\n"
    "    switch $token\n";

static void print_fish_keys(void) {
  for (int inference = 1; inference >= 0; inference--)
    for (int i = 0; i < recipe_key_count; i++) {
      const RecipeKey *key = &recipe_keys[i];
      if (key->inference != inference) continue;
      char *doc;
      size_t size;
      FILE *sentence = open_memstream(&doc, &size);
      CHECK(sentence, "no memory");
      put_sentence(key->doc, "", sentence);
      fclose(sentence);
      const char *when = key->generation ? "test $argv[1] != all; and " : inference ? "" : "test $argv[1] = all; and ";
      printf("            %sprintf '%%s\\t%%s\\n' %s= ", when, key->path);
      put_fish_text(doc, stdout);
      putchar('\n');
      free(doc);
    }
}

static void print_fish(void) {
  fputs(fish_head, stdout);
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    printf("        case '%s=*'\n            ", key->path);
    if (is_path(key)) {
      printf("__fish_complete_path (string replace -- %s= '' $token) | string replace -r -- '^' %s=\n", key->path,
             key->path);
      continue;
    }
    fputs("printf '%s\\n'", stdout);
    list_values(key, put_fish_value, stdout);
    fputs("\n", stdout);
  }
  fputs("        case '*'\n", stdout);
  print_fish_keys();
  fputs("    end\nend\n\n", stdout);
  for (int i = 0; i < command_count; i++) {
    if (!*commands[i].summary) continue;
    printf("complete -c plait -n __fish_use_subcommand -a %s -d ", commands[i].name);
    put_fish_text(commands[i].summary, stdout);
    putchar('\n');
  }
  fputs("complete -c plait -n __fish_use_subcommand -a help -d 'print the help of a command'\n"
        "complete -c plait -n '__fish_seen_subcommand_from help' -a '", stdout);
  for (int i = 0; i < command_count; i++)
    if (*commands[i].summary) printf("%s%s", i ? " " : "", commands[i].name);
  fputs("'\ncomplete -c plait -l help -d 'print help and exit'\n"
        "complete -c plait -l version -d 'print the version and exit'\n", stdout);
  for (int i = 0; i < command_count; i++) command_print(&commands[i], "fish");
}

bool completion_print(const char *shell) {
  if (!strcmp(shell, "bash")) return print_bash(), true;
  if (!strcmp(shell, "zsh")) return print_zsh(), true;
  if (!strcmp(shell, "fish")) return print_fish(), true;
  return false;
}
