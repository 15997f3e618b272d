// Writing batch scripts, and calling sbatch.
#include "elastic/batch_script.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

// sbatch reads quotes in these lines much as a shell does, but no '\'' between single ones.
static void quote_option(const char *word, FILE *out) {
  const char *special = " \t'\"\\#$`;&|<>*?()!~{}";
  if (!word[strcspn(word, special)]) {
    fputs(word, out);
    return;
  }
  putc('"', out);
  for (; *word; word++) {
    if (*word == '"' || *word == '\\') putc('\\', out);
    putc(*word, out);
  }
  putc('"', out);
}

static void put_option(const char *name, const char *value, FILE *out) {
  fprintf(out, "#SBATCH --%s=", name);
  quote_option(value, out);
  putc('\n', out);
}

static void write_options(const BatchScript *s, FILE *out) {
  put_option("job-name", s->name, out);
  put_option("chdir", s->folder, out);
  fprintf(out, "#SBATCH --nodes=%d", s->least_nodes);
  if (s->most_nodes != s->least_nodes) fprintf(out, "-%d", s->most_nodes);
  fprintf(out, "\n#SBATCH --ntasks-per-node=%d\n", s->tasks);
  put_option("time", s->time, out);
  fprintf(out, "#SBATCH --signal=USR1@%d\n", s->lead); // without B: to the processes of srun, not to this shell
  fprintf(out, "#SBATCH --%s\n#SBATCH --open-mode=append\n#SBATCH --no-kill\n",
          s->requeues ? "requeue" : "no-requeue");
  if (s->run_count) fprintf(out, "#SBATCH --array=1-%d\n", s->run_count);
  if (!s->options.count) return;
  fputs("#SBATCH", out);
  for (int i = 0; i < s->options.count; i++) {
    putc(' ', out);
    quote_option(s->options.word[i], out);
  }
  putc('\n', out);
}

static void write_words(const Words *words, FILE *out) {
  for (int i = 0; i < words->count; i++) {
    putc(' ', out);
    words_quote(words->word[i], out);
  }
}

static void write_assignment(const char *name, const char *value, FILE *out) {
  fprintf(out, "%s=", name);
  words_quote(value, out);
  putc('\n', out);
}

static void write_keys(const BatchScript *s, FILE *out) {
  fputs("keys=(", out);
  for (int i = 0; i < s->keys.count; i++) {
    if (i) putc(' ', out);
    words_quote(s->keys.word[i], out);
  }
  fputs(")\n", out);
  if (!s->run_count) return;
  fputs("case $SLURM_ARRAY_TASK_ID in\n", out);
  for (int i = 0; i < s->run_count; i++) {
    fprintf(out, "  %d) keys+=(", i + 1);
    for (int k = 0; k < s->runs[i].count; k++) {
      if (k) putc(' ', out);
      words_quote(s->runs[i].word[k], out);
    }
    fputs(") ;;\n", out);
  }
  fputs("esac\n", out);
}

static const char preamble[] =
    "trap : TERM # of scancel: this shell waits until srun has ended, and the run is saved\n"
    "unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK # one supervisor has all cores of its machine's share\n";

// Several machines need stores, and the supervisor that is left when another machine has failed goes on.
static void write_launch(const BatchScript *s, FILE *out) {
  if (s->most_nodes > 1) fputs("stores=$(\"$plait\" slurm --stores) || exit\n", out);
  fputs("srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" --ntasks-per-node=1 --mpi=none \\\n"
        "  --cpu-bind=none --no-kill --kill-on-bad-exit=0 --wait=0 \\\n"
        "  \"$plait\" launch",
        out);
  fprintf(out, " --nproc-per-node %d", s->tasks);
  if (s->most_nodes > 1) {
    if (s->least_nodes == s->most_nodes) fprintf(out, " --nnodes %d", s->most_nodes);
    else fprintf(out, " --nnodes \"%d:$SLURM_JOB_NUM_NODES\"", s->least_nodes);
    fputs(" --rdzv \"$stores\"", out);
  }
  fputs(" --rdzv-id \"slurm-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}\"", out);
  write_words(&s->launch, out);
  fputs(" \\\n  \"$recipe\" \"${keys[@]}\"\nstatus=$?\n", out);
}

static void write_end(const BatchScript *s, FILE *out) {
  if (s->requeues)
    fprintf(out,
            "if [ $status -eq %d ]; then # the time is up, and the run is saved\n"
            "  job=$SLURM_JOB_ID\n"
            "  if [ -n \"${SLURM_ARRAY_TASK_ID:-}\" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi\n"
            "  scontrol requeue \"$job\" || echo \"plait: job $job is not requeued; plait slurm --chain N submits jobs "
            "that follow each other\" >&2\n"
            "fi\n",
            EX_TEMPFAIL);
  fputs("exit $status\n", out);
}

static int check_words(const char *what, const Words *words, Error *error) {
  for (int i = 0; i < words->count; i++)
    if (strpbrk(words->word[i], "\n\r"))
      return error_set(error, PLAIT_BAD_INPUT, "%s: \"%.200s\" has a line break, which a batch script cannot hold",
                       what, words->word[i]);
  return PLAIT_OK;
}

static int check(const BatchScript *s, Error *error) {
  Words own = {(char *[]){(char *)s->name, (char *)s->folder, (char *)s->time, (char *)s->plait, (char *)s->recipe}, 5};
  int code = check_words("a path", &own, error);
  if (!code) code = check_words("a key", &s->keys, error);
  if (!code) code = check_words("an option of plait launch", &s->launch, error);
  if (!code) code = check_words("an option of sbatch", &s->options, error);
  for (int i = 0; i < s->run_count && !code; i++) code = check_words("a key", &s->runs[i], error);
  return code;
}

int batch_script_write(const BatchScript *s, FILE *out, Error *error) {
  int code = check(s, error);
  if (code) return code;
  fprintf(out, "#!/bin/bash\n# A training run as a job of Slurm, written by plait slurm (plait %s).\n", s->version);
  write_options(s, out);
  putc('\n', out);
  fputs(preamble, out);
  write_assignment("plait", s->plait, out);
  write_assignment("recipe", s->recipe, out);
  write_keys(s, out);
  fprintf(out, "export PLAIT_LEAD=%d # seconds from the signal to the limit\n\n", s->lead);
  write_launch(s, out);
  write_end(s, out);
  return PLAIT_OK;
}

// sbatch -------------------------------------------------------------------------------------------------------------

static _Noreturn void become_sbatch(int output, const char *path, const char *dependency) {
  const char *argv[5] = {"sbatch", "--parsable"};
  int n = 2;
  if (dependency) argv[n++] = dependency;
  argv[n++] = path;
  dup2(output, 1);
  dup2(output, 2);
  execvp(argv[0], (char *const *)argv);
  dprintf(2, "sbatch: %s", strerror(errno));
  _exit(127);
}

// All that it prints, on one line; its status, or -1.
static int call_sbatch(const char *path, const char *dependency, char *text, size_t size) {
  int ends[2], status = -1;
  size_t n = 0;
  if (pipe(ends)) return -1;
  pid_t pid = fork();
  if (pid == 0) become_sbatch(ends[1], path, dependency);
  close(ends[1]);
  for (ssize_t got = 1; pid > 0 && got > 0 && n + 1 < size; n += got > 0 ? (size_t)got : 0)
    got = read(ends[0], text + n, size - 1 - n);
  close(ends[0]);
  while (n && text[n - 1] == '\n') n--;
  text[n] = 0;
  for (char *c = text; *c; c++)
    if (*c == '\n') *c = ' ';
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int batch_script_submit(const char *path, const char *after, char id[static 64], Error *error) {
  char text[700] = "", *dependency = after ? xformat("--dependency=afterany:%s", after) : NULL;
  int status = call_sbatch(path, dependency, text, sizeof text);
  free(dependency);
  if (status == 127)
    return error_set(error, PLAIT_FAILED, "%s: cannot be run; submit %s where Slurm is installed", text, path);
  // The last word: warnings come before. A cluster's name may follow the number.
  char *word = strrchr(text, ' ') ? strrchr(text, ' ') + 1 : text;
  size_t digits = strspn(word, "0123456789");
  if (status || !digits || digits > 20 || (word[digits] && word[digits] != ';'))
    return error_set(error, PLAIT_FAILED, "sbatch does not take %s: %s", path, *text ? text : "it says nothing");
  snprintf(id, 64, "%.*s", (int)digits, word);
  return PLAIT_OK;
}
