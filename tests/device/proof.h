// Three steps of a small model on ranks that are threads or processes over net, with a device or a compile option that
// no recipe asks for: proof that a row of a table trains, saves and resumes.
#pragma once
#include "compile/compile.h"
#include "device/device.h"

enum { PROOF_STEPS = 3, PROOF_RANKS = 8 };

typedef struct Proof {
  const char *keys;             // of the recipe, "mesh.dp=2 parallel.zero=1": of at most PROOF_RANKS ranks
  const Device *device;         // NULL: device_cpu()
  void (*set)(CompileOptions *); // changes what is compiled; may be NULL
  int net;                      // ranks are processes over net, else threads
  int apart;                    // threads in a process of their own: for a device that does not outlive a fork
  int first, last;              // steps; of a first above 1 the checkpoint of the step before is loaded
  const char *folder;           // of checkpoints; NULL: the last step is not saved
} Proof;

typedef struct ProofResult {
  double loss[PROOF_STEPS + 1], norm[PROOF_STEPS + 1]; // by step
  uint64_t
      digest[PROOF_RANKS]; // of the bits of all Variables of a checkpoint, as each rank has them after the last step
} ProofResult;

// Fails the test of cmocka that calls it where anything goes wrong. The result lies in memory that processes share.
const ProofResult *proof_run(const Proof *proof);

// The layouts of a proof, of two to four ranks.
extern const char *const proof_layouts[4];
// Runs all of it (in tier 1 in the first layout) against the ordinary CPU: in each layout, with threads and with
// processes, losses, norms and Variables are the same bits as those of that layout on the CPU, and losses and norms
// those of one rank to the rounding of sums; what is saved after step 2 resumes to the same bits, and by the ordinary
// CPU too.
void proof_of(const Proof *what);
