// plait doctor: what plait uses of this machine and build, what is missing, what that is good for and how to get
// it.
#include "device/cpu/cpu.h"
#include "device/cuda/facts.h"
#include "base/control_group.h"
#include "base/file.h"
#include "base/memory_usage.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "cli/wrap.h"
#include "comm/launcher.h"
#include "comm/net.h"
#include "comm/net_shared.h"
#include "net/secret.h"
#include "elastic/etcd_http.h"
#include "serve/http.h"
#include "base/cores.h"
#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <yaml.h>
#include <zlib.h>
#include <zstd.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "an unknown compiler"
#endif

static const char *const GOOD = "ok", *const MISSING = "--", *const LOOK = "!!";

enum { INDENT = 16 }; // columns before the text of a line

__attribute__((format(printf, 3, 4))) static void say(const char *mark, const char *topic, const char *format, ...) {
  char text[1 << 12];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  wrap_text(stdout, text, printf("%s  %-10s  ", mark, topic), INDENT, wrap_columns(stdout));
}

static void advise(const char *label, const char *text) {
  if (text) wrap_text(stdout, text, printf("%*s%s: ", INDENT, "", label), INDENT + 2, wrap_columns(stdout));
}

static void advice(const char *good_for, const char *how) {
  advise("good for", good_for);
  advise("to do", how);
}

// The first line of a small file of /proc or /sys, without its newline; "" where there is none.
static const char *first_line(const char *path, char *line, size_t size) {
  FILE *f = fopen(path, "re");
  if (!f || !fgets(line, (int)size, f)) *line = 0;
  if (f) fclose(f);
  line[strcspn(line, "\n")] = 0;
  return line;
}

// The text after "KEY…:" in a file of such lines; "" where there is none.
static const char *value_of(const char *path, const char *key, char *value, size_t size) {
  char line[1024];
  FILE *f = fopen(path, "re");
  *value = 0;
  while (f && !*value && fgets(line, sizeof line, f)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) || !colon) continue;
    colon[strcspn(colon, "\n")] = 0;
    for (colon++; isspace((unsigned char)*colon); colon++) {}
    snprintf(value, size, "%s", colon);
  }
  if (f) fclose(f);
  return value;
}

static int on_path(const char *program) {
  const char *path = getenv("PATH");
  while (path && *path) {
    size_t n = strcspn(path, ":");
    char file[4096];
    if (n && snprintf(file, sizeof file, "%.*s/%s", (int)n, path, program) < (int)sizeof file && !access(file, X_OK))
      return 1;
    path += n + (path[n] == ':');
  }
  return 0;
}

// The first line that a command prints, within ten seconds: drivers of broken devices can hang.
static const char *output_of(const char *command, char *line, size_t size) {
  char *whole = xformat("%s%s </dev/null 2>/dev/null", on_path("timeout") ? "timeout 10 " : "", command);
  FILE *f = popen(whole, "r");
  if (!f || !fgets(line, (int)size, f)) *line = 0;
  if (f) pclose(f);
  free(whole);
  line[strcspn(line, "\n")] = 0;
  return line;
}

// The machine --------------------------------------------------------------------------------------------------------

// How many cores' time the control groups of this process grant it, as docker run --cpus sets it; a great many without
// a limit.
static double cores_granted(void) {
  double least = 1 << 20;
  ControlGroup g;
  for (int more = control_group_find("", "cpu", &g); more; more = control_group_up(&g)) {
    char text[64];
    double quota = (double)control_group_number(&g, "cpu.cfs_quota_us", NULL),
           period = (double)control_group_number(&g, "cpu.cfs_period_us", NULL);
    control_group_text(&g, "cpu.max", text, sizeof text);
    if (g.version == 2 && sscanf(text, "%lf %lf", &quota, &period) != 2) quota = -1; // "max 100000"
    if (quota > 0 && period > 0 && quota / period < least) least = quota / period;
  }
  return least;
}

static void tell_cores(void) {
  char model[256];
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  value_of("/proc/cpuinfo", "model name", model, sizeof model);
  int cores = cores_available();
  say(GOOD, "cores", "%d of %ld%s%s%s; plait runs one thread on each", cores, online, *model ? " (" : "", model,
      *model ? ")" : "");
  double granted = cores_granted();
  if (granted < cores) {
    say(LOOK, "cores", "a control group (container) grants the time of only %.3g cores", granted);
    advice(NULL, "set run.threads to that number, or raise the limit (docker run --cpus, systemd's CPUQuota=)");
  }
}

static void tell_simd(void) {
  char available[128] = "";
  for (int level = CPU_PORTABLE; level < CPU_LEVELS; level++)
    if (cpu_level_available(level))
      snprintf(available + strlen(available), sizeof available - strlen(available), "%s%s", level ? ", " : "",
               cpu_level_name(level));
  CpuLevel chosen = cpu_simd_level();
  const char *wish = getenv("PLAIT_SIMD");
  say(GOOD, "SIMD", "kernels use %s%s%s; this CPU can run %s", cpu_level_name(chosen),
      wish ? ", because PLAIT_SIMD is " : "", wish ? wish : "", available);
  if (!cpu_level_available(CPU_AVX512_BF16))
    say(LOOK, "SIMD",
        "no bf16 instructions that plait uses: precision bf16 saves memory here, but little time. CPUs that "
        "have them: Cooper Lake, Sapphire Rapids, Zen 4 and later");
  char text[160];
  if (cpu_simd_wish(text, sizeof text)) say(LOOK, "SIMD", "%s", text);
}

static void tell_memory(void) {
  char total[64];
  double bytes = 1024 * strtod(value_of("/proc/meminfo", "MemTotal", total, sizeof total), NULL);
  MemoryAvailable m = memory_usage_available_in("");
  say(GOOD, "memory", "%s available of %s%s", m.bytes >= 0 ? units_bytes((double)m.bytes).s : "an unknown part",
      bytes > 0 ? units_bytes(bytes).s : "an unknown size", m.why);
  if (m.limit && ((double)m.limit < bytes || bytes <= 0)) {
    say(LOOK, "memory", "a control group (container) allows %s; the kernel kills a process that uses more",
        units_bytes((double)m.limit).s);
    advice(NULL, "keep the total of plait plan below that, or raise the limit (docker run --memory, systemd's "
                 "MemoryMax=)");
  }
}

static void tell_huge_pages(void) {
  char line[128], setting[64] = "";
  first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
  sscanf(line, "%*[^[][%63[^]]", setting);
  if (*line == '[') sscanf(line, "[%63[^]]", setting);
  int good = !strcmp(setting, "always") || !strcmp(setting, "madvise");
  if (good) {
    say(GOOD, "huge pages", "the kernel gives plait huge pages (transparent huge pages: %s)", setting);
    return;
  }
  say(MISSING, "huge pages", "%s", *setting ? "transparent huge pages are switched off: never"
                                           : "this kernel was built without transparent huge pages");
  advice("speed: the steps of large models become up to twice as fast",
         *setting ? "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
                  : "a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
}

// /dev/nvidia0, /dev/nvidia1, …
static int nvidia_devices(void) {
  int count = 0;
  DIR *folder = opendir("/dev");
  for (struct dirent *e; folder && (e = readdir(folder));)
    count += !strncmp(e->d_name, "nvidia", 6) && isdigit((unsigned char)e->d_name[6]);
  if (folder) closedir(folder);
  return count;
}

// Where there is a GPU but no driver for plait, what nvidia-smi says of it.
static void tell_no_driver(const char *why) {
  char line[256] = "";
  int count = nvidia_devices();
  if (on_path("nvidia-smi"))
    output_of("nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader", line, sizeof line);
  if (!count && !strchr(line, ',')) {
    say(GOOD, "GPU", "none%s; run.backend: cuda needs one by NVIDIA (%s)",
        file_exists("/dev/kfd") ? " by NVIDIA (one by AMD)" : "", why);
    return;
  }
  say(MISSING, "GPU", "%d by NVIDIA%s%s, but %s", count ? count : 1, *line ? ", the first: " : "", line, why);
  advice("run.backend: cuda (docs/cuda.md)", "install NVIDIA's driver, 525 or a newer one");
}

static void tell_gpu(int number) {
  CudaFacts f;
  Error error = {0};
  if (cuda_facts(number, &f, &error)) {
    say(LOOK, "GPU", "%s", error.message);
    return;
  }
  say(GOOD, "GPU", "%d: %s, compute capability %d.%d, %d multiprocessors, %s of %s free", number, f.name, f.major,
      f.minor, f.multiprocessors, units_bytes((double)f.available).s, units_bytes((double)f.total).s);
}

static void tell_library(CudaLibrary which, const char *name, const char *makes) {
  Error error = {0};
  const char *library;
  size_t version; // 130100 is 13.1.0, and 91900 is 9.19.0
  if (cuda_library_facts(which, &library, &version, &error))
    say(LOOK, name, "%s; without it %s plait's own kernels, which are slow", error.message, makes);
  else
    say(GOOD, name, "%s, version %zu.%zu.%zu", library, version / 10000, version / 100 % 100, version % 100);
}

static void tell_gpus(void) {
  Error error = {0};
  int version, devices;
  const char *driver;
  if (cuda_driver_facts(&driver, &version, &devices, &error)) {
    tell_no_driver(error.message);
    return;
  }
  say(GOOD, "CUDA", "the driver %s is one for CUDA %d.%d and older, with %d device%s", driver, version / 1000,
      version % 1000 / 10, devices, devices == 1 ? "" : "s");
  for (int i = 0; i < devices; i++) tell_gpu(i);
  tell_library(CUDA_LIBRARY_BLAS, "cuBLASLt", "products use");
  tell_library(CUDA_LIBRARY_DNN, "cuDNN", "attention uses");
  if (!cuda_has_code())
    say(LOOK, "CUDA",
        "this plait was built without nvcc and has no kernels for cards: run.backend: cuda needs "
        "PLAIT_CUDA_HOST=all here, with which all ops run on the host (docs/cuda.md)");
  say(LOOK, "CUDA",
      "plait's kernels for GPUs, and its calls of cuBLASLt and cuDNN, were never run on a card: plait check-device "
      "compares them with the CPU's (docs/cuda.md)");
}

// The wheel ----------------------------------------------------------------------------------------------------------

// The packages that python/make-wheel has packed with this program, "libjansson4 2.14-2, …"; "" where it does not come
// from a wheel.
static const char *wheel_packages(char *text, size_t size) {
  char path[PATH_MAX], line[256];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  path[n > 0 ? n : 0] = *text = 0;
  char *slash = strrchr(path, '/');
  if (slash) *slash = 0;
  char *name = xformat("%s/../share/plait/wheel", path);
  FILE *f = fopen(name, "re");
  for (size_t at = 0; f && at < size && fgets(line, sizeof line, f); at = strlen(text)) {
    line[strcspn(line, "\n")] = 0;
    snprintf(text + at, size - at, "%s%s", at ? ", " : "", line);
  }
  if (f) fclose(f);
  free(name);
  return text;
}

static bool from_wheel(void) {
  char text[1024];
  return *wheel_packages(text, sizeof text);
}

static void tell_wheel(void) {
  char text[1024];
  if (*wheel_packages(text, sizeof text))
    say(GOOD, "wheel", "installed by pip, with libraries of its own (%s); an MPI is not among them", text);
}

// The build ----------------------------------------------------------------------------------------------------------

// The package that a plait built without MPI needs beside the launcher that is here, by the launcher's vendor.
static const char *missing_for_mpi(void) {
  if (from_wheel())
    return "run.comm: net, which needs no MPI; or build plait from its source beside the machine's MPI, which a wheel "
           "cannot have";
  char line[256] = "";
  const char *launcher = on_path("mpirun") ? "mpirun --version" : on_path("mpiexec") ? "mpiexec --version" : NULL;
  if (launcher) output_of(launcher, line, sizeof line);
  if (strstr(line, "Open MPI") || strstr(line, "OpenRTE") || strstr(line, "Open RTE"))
    return "apt-get install libopenmpi-dev, then make (Open MPI's launcher is installed, but its headers and libraries "
           "were not when plait was built)";
  if (strstr(line, "HYDRA"))
    return "apt-get install libmpich-dev, then make (MPICH's launcher is installed, but its headers and libraries were "
           "not when plait was built)";
  return "apt-get install libopenmpi-dev openmpi-bin (or libmpich-dev mpich), then make";
}

static void tell_mpi(void) {
  static const char *const launchers[] = {"mpirun", "mpiexec", "srun"};
  char found[64] = "", version[1 << 14];
  const char *library = launcher_mpi_version(version);
  for (int i = 0; i < COUNT(launchers); i++)
    if (on_path(launchers[i]))
      snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", *found ? ", " : "", launchers[i]);
  int good = library && *found;
  say(good ? GOOD : MISSING, "MPI", "plait was built with %.100s; launchers on PATH: %s", library ? library : "no MPI",
      *found ? found : "none");
  if (good) return;
  advice("running ranks as processes, on one or several machines (run.comm: mpi)",
         library ? "apt-get install openmpi-bin, or mpich" : missing_for_mpi());
}

static void tell_net(void) {
  const char *version = net_version();
  if (version) {
    say(GOOD, "UCX", "%s (shared memory between ranks that are processes, run.comm: net)", version);
    return;
  }
  say(MISSING, "UCX",
      net_shared_is_built() ? "plait was built with it, but it cannot be loaded" : "plait was built without it");
  advice("shared memory between ranks that are processes of one machine, which talk by Unix sockets without it",
         net_shared_is_built() ? "apt-get install libucx0" : "apt-get install libucx-dev, then make");
}

static void tell_tls(void) {
  const char *version = tls_version();
  if (version) {
    say(GOOD, "GnuTLS", "%s (jobs with a secret: plait launch --secret)", version);
    return;
  }
  say(MISSING, "GnuTLS",
      tls_is_built() ? "plait was built with it, but it cannot be loaded" : "plait was built without it");
  advice("TLS between the processes of a job (plait launch --secret)",
         tls_is_built() ? "apt-get install libgnutls30" : "apt-get install libgnutls28-dev, then make");
}

static void tell_curl(void) {
  const char *version = etcd_http_version();
  if (version) {
    size_t two = strcspn(version, " "); // its own version, and that of its TLS
    two += version[two] ? 1 + strcspn(version + two + 1, " ") : 0;
    say(GOOD, "libcurl", "%.*s (machines that meet in etcd: plait launch --rdzv etcd://)", (int)two, version);
    return;
  }
  say(MISSING, "libcurl",
      etcd_http_is_built() ? "plait was built with it, but it cannot be loaded" : "plait was built without it");
  advice("machines of a job that meet in etcd (plait launch --rdzv etcd://)",
         etcd_http_is_built() ? "apt-get install libcurl4" : "apt-get install libcurl4-openssl-dev, then make");
}

static void tell_http(void) {
  const char *version = http_version();
  if (version) {
    say(GOOD, "microhttpd", "%s (plait serve)", version);
    return;
  }
  say(MISSING, "microhttpd",
      http_is_built() ? "plait was built with libmicrohttpd, but it cannot be loaded"
                      : "plait was built without libmicrohttpd");
  advice("answering requests of OpenAI's clients (plait serve)",
         http_is_built() ? "apt-get install libmicrohttpd12" : "apt-get install libmicrohttpd-dev, then make");
}

static void tell_build(void) {
  char pcre[64] = "";
  pcre2_config(PCRE2_CONFIG_VERSION, pcre);
  say(GOOD, "compiler", "%s", COMPILER);
  say(GOOD, "libyaml", "%s (reads recipes)", yaml_get_version_string());
  say(GOOD, "jansson", "%s (reads JSON)", JANSSON_VERSION);
  say(GOOD, "pcre2", "%s (regular expressions of tokenizers)", pcre);
  say(GOOD, "zlib", "%s (reads .gz text)", zlibVersion());
  say(GOOD, "libzstd", "%s (reads .zst text)", ZSTD_versionString());
}

static void tell_tools(void) {
  if (on_path("clang")) say(GOOD, "clang", "installed (make fuzz)");
  else {
    say(MISSING, "clang", "not on PATH");
    advice("make fuzz: with clang it chooses inputs by the code that they reach", "apt-get install clang");
  }
  if (on_path("python3")) say(GOOD, "python3", "installed (makes the tests' golden files)");
  else {
    say(MISSING, "python3", "not on PATH");
    advice("making the tests' golden files (scripts/golden_*.py)", "apt-get install python3");
  }
}

int cmd_doctor(int argc, char **argv) {
  const CommandHelp help = {
      "doctor", "",
      "Shows what plait uses of this machine, and what it was built with. Each line starts with ok (fine), -- "
      "(missing; "
      "the next lines say what it is good for and how to get it) or !! (worth a look). The exit status is always 0.",
      "  plait doctor\n"
      "  PLAIT_SIMD=avx2 plait doctor | grep SIMD\n",
      .takes = TAKES_NOTHING};
  Operands operands;
  int status = options_parse(&help, NULL, 0, 0, 0, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  struct utsname system;
  if (uname(&system)) memset(&system, 0, sizeof system);
  printf("plait %s on %s: %s %s, %s\n", PLAIT_VERSION, system.nodename, system.sysname, system.release,
         system.machine);
  puts("ok: fine   --: missing   !!: worth a look");
  puts("\nThis machine");
  tell_cores();
  tell_simd();
  tell_memory();
  tell_huge_pages();
  tell_gpus();
  puts("\nThis build of plait");
  tell_wheel();
  tell_mpi();
  tell_net();
  tell_tls();
  tell_curl();
  tell_http();
  tell_build();
  puts("\nFor work on plait itself");
  tell_tools();
  return 0;
}
