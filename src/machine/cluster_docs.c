// docs/clusters.md from the table of keys and the files that come with plait.
#include "machine/cluster_find.h"
#include "machine/cluster_keys.h"
#include <stdlib.h>
#include <string.h>

static const char intro[] =
    "<!-- Made from the table of keys in src/machine/cluster_keys.def and from clusters/ by `plait cluster --docs`; a "
    "test\n"
    "compares. -->\n"
    "# Clusters\n"
    "\n"
    "A cluster file is a YAML file that says what plait must know of machines to predict how long a step takes: the\n"
    "devices, how they are connected, and measurements. `plait cluster` lists the files that come with plait;\n"
    "`plait cluster NAME` or `plait cluster FILE` reads one, refuses mistakes, and prints what is in it. The machine "
    "that\n"
    "the predictions are made on needs none of the devices.\n"
    "\n"
    "## How to describe your own machines\n"
    "\n"
    "Two servers with four GPUs each:\n"
    "\n"
    "```yaml\n";
// A test reads it.
static const char example[] = "name: two servers of the lab\n"
                              "device:\n"
                              "  name: A100-PCIe-40GB\n"
                              "  matrix: {fp32: 19.5e12, bf16: 312e12, fp16: 312e12}\n"
                              "  vector: {fp32: 19.5e12, bf16: 39e12, fp16: 78e12}\n"
                              "  units: 108\n"
                              "  cache: 40e6\n"
                              "  memory: 40e9\n"
                              "  bandwidth: 1.555e12\n"
                              "  launch: 2.5e-6\n"
                              "  host: 5e-6\n"
                              "  source: NVIDIA A100 data sheet; launch and host are estimates\n"
                              "levels:                        # from the inside out\n"
                              "  - {name: pcie, count: 4, kind: bus, bandwidth: 31.5e9, latency: 6e-6, source: PCIe "
                              "4.0 x16; latency is an estimate}\n"
                              "  - {name: ethernet, count: 2, bandwidth: 3.1e9, latency: 3e-5, source: \"25 Gb/s, one "
                              "port a server; estimate\"}\n"
                              "measured: |                    # or the path of a CSV file, relative to this file\n"
                              "  kind,ranks,nodes,bytes,seconds\n"
                              "  all_reduce,4,1,1e6,1.2e-4\n"
                              "  all_reduce,4,1,1e8,8.1e-3\n"
                              "source: measured with nccl-tests on 3 May\n";
static const char rules[] =
    "```\n"
    "\n"
    "1. Take rates, memory and bandwidth from the data sheet, the rates without sparsity.\n"
    "2. Write the levels from the inside out. `count` units of the level below are one unit of a level, so the first\n"
    "   `count` is devices in a node, the next one nodes. `ports` and `bandwidth` are of one unit of the level below: "
    "a\n"
    "   node with eight network cards of 200 Gb/s has `ports: 8, bandwidth: 25e9`.\n"
    "3. Run `plait cluster FILE` and compare the bandwidth of a port, of a unit and of all ports with what you know.\n"
    "4. Measure some collectives where you can, and name them under `measured`.\n"
    "\n"
    "All numbers are in seconds, bytes, bytes/s and FLOP/s, with powers of 1000: 80 GB are `80e9`. Every section that "
    "has\n"
    "numbers needs a `source`: where they come from. An estimate is a source, if it says so. Unknown keys, values out "
    "of\n"
    "range and keys given twice are refused with line and column.\n"
    "\n"
    "### Measured collectives\n"
    "\n"
    "Lines of `kind,ranks,nodes,bytes,seconds` after a line with just these words. `bytes` is the whole tensor: what "
    "every\n"
    "rank has before an all_reduce and after an all_gather. Lines are sorted by kind, then ranks, nodes and bytes;\n"
    "`sort -t, -k1,1 -k2,2n -k3,3n -k4,4g` sorts them (without the first line, in the C locale). Between two lines of "
    "the\n"
    "same kind, ranks and nodes the logarithm of the time is interpolated over the logarithm of the bytes. They go "
    "before\n"
    "the formulas. Lines that start with # are comments. The kinds:\n"
    "\n";
static const char mistakes[] =
    "\n"
    "## Common mistakes\n"
    "\n"
    "- **Both directions.** Data sheets give NVLink and PCIe as the sum of both directions: 600 GB/s of NVLink are\n"
    "  `bandwidth: 300e9`.\n"
    "- **Bits.** Networks are sold in bits: 400 Gb/s are `50e9`.\n"
    "- **Ports of a device.** `ports` of the outer level counts the network cards of a node. If a node's cards add up "
    "to\n"
    "  400 Gb/s, as on AWS p4d, then ports · bandwidth is 50e9, not 8 · 50e9.\n"
    "- **Sparsity.** The larger rate on a data sheet is often for sparse matrices; training uses the dense one.\n"
    "- **TF32.** Frameworks compute fp32 products without TF32 unless it is turned on. `matrix.fp32` of the shipped "
    "files is\n"
    "  the plain rate; for a run with TF32 use `--what-if device.matrix.fp32=156e12` or a file of your own.\n"
    "- **A rate of a dtype that the device lacks.** Leave it out: a V100 has no bf16. A run in it is then refused, "
    "with\n"
    "  the dtypes that there are.\n"
    "- **The peak for long runs.** Power limits slow long runs. `sustained` is what is left, 1 where nobody measured "
    "it:\n"
    "  then predictions of compute are lower bounds. It is not what a product reaches over the data sheet's rate: "
    "tiles "
    "and\n"
    "  waves take their part beside it. The shipped files have the number with which the model's time of the product "
    "that\n"
    "  their source names is what the source says.\n";

static void print_cell(const char *text, FILE *out) {
  for (; *text; text++) fputs(*text == '|' ? "\\|" : (char[]){*text, 0}, out);
}

static void print_row(const ClusterKey *key, FILE *out) {
  char allowed[192];
  cluster_key_allowed(key, allowed, sizeof allowed);
  fprintf(out, "| `%s` | ", key->name);
  print_cell(allowed, out);
  if (!key->fallback) fputs(" | must be given | ", out);
  else if (*key->fallback) fprintf(out, " | `%s` | ", key->fallback);
  else fputs(" | none | ", out);
  print_cell(key->doc, out);
  fputs(" |\n", out);
}

static void print_sections(FILE *out) {
  fputs("\n## Every key\n", out);
  for (int s = 0; s < CLUSTER_SECTIONS; s++) {
    fprintf(out, "\n### %s\n\n%s\n\n| key | value | default | |\n|---|---|---|---|\n", cluster_sections[s].heading,
            cluster_sections[s].doc);
    for (int i = 0; i < cluster_key_count; i++)
      if (cluster_keys[i].section == (ClusterSection)s) print_row(&cluster_keys[i], out);
  }
}

static void print_source(const char *what, const char *source, FILE *out) {
  if (!source) return;
  fprintf(out, "| %s | ", what);
  print_cell(source, out);
  fputs(" |\n", out);
}

static int print_shipped(const char *name, FILE *out, Error *error) {
  Cluster *c;
  int code = cluster_load(name, &c, error);
  if (code) return code;
  c->path = arena_format(&c->arena, "clusters/%s.yaml", name); // wherever it lies here
  fprintf(out, "\n### %s\n\n```\n", name);
  cluster_print(c, out);
  fputs("```\n\n| | source |\n|---|---|\n", out);
  print_source("device", c->device.source, out);
  for (int i = 0; i < c->spaces; i++) print_source(c->space[i].name, c->space[i].source, out);
  for (int i = 0; i < c->levels; i++) print_source(c->level[i].name, c->level[i].source, out);
  print_source("software", c->software.source, out);
  print_source("base, spread", c->source, out);
  cluster_free(c);
  return PLAIT_OK;
}

int cluster_print_docs(FILE *out, Error *error) {
  fputs(intro, out);
  fputs(example, out);
  fputs(rules, out);
#define COLLECTIVE(id, name, meaning) fputs("- `" name "`: " meaning "\n", out);
#include "machine/collectives.def"
  print_sections(out);
  fputs(mistakes, out);
  fputs(
      "\n## The shipped clusters\n\nA file beside them, or `$PLAIT_CLUSTERS`, a folder with more, is found by its name "
      "too.\n",
      out);
  ClusterList list = cluster_list();
  int code = PLAIT_OK;
  for (int i = 0; i < list.count && !code; i++) code = print_shipped(list.names[i], out, error);
  cluster_list_free(&list);
  return code;
}
