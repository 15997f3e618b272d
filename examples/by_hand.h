// Shared by the by_hand_*.c: a small Llama as plain loops in double precision, its first weights, its text, and Adam.
// Nothing here knows of ranks, but for `cut`: the number of parts that a block's heads and hidden features are cut
// into.
//
// A sequence flows through the model in place: x (SEQ, EMBED) is what a layer reads and then what it gives; in backward
// the same memory holds the gradient of the loss with respect to it. Matrices are (out, in), row after row.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  VOCAB = 128,
  EMBED = 16,
  HEADS = 4,
  HEAD = EMBED / HEADS,
  FFN = 32,
  LAYERS = 4,
  SEQ = 16,
  BATCH = 8,
  STEPS = 20
};

// The text, a character a token: BATCH sequences, each with the next character as the target. A step sees all of it.
static const char text[] =
    "A plait is many strands laid into one: each of them runs its own way, over and under the others, and no one of "
    "them is the whole.";
_Static_assert(sizeof text - 1 == BATCH * SEQ + 1, "the last target is the character after the last sequence");

// Weights -------------------------------------------------------------------------------------------------------------
// The model is a row of pieces: the embedding, a piece for each block, the head. A piece is one array of numbers.

enum { EMBEDDING = 0, FIRST_BLOCK = 1, LAST = FIRST_BLOCK + LAYERS, PIECES }; // LAST: the final norm and the head

typedef struct Block { double *norm1, *q, *k, *v, *o, *norm2, *gate, *up, *down; } Block;

// Where the tensors of a block lie in a piece. q, k and v are cut by rows (heads), o by columns; gate and up by rows
// (hidden features), down by columns.
static inline Block block_at(double *p, int cut) {
  int square = EMBED * EMBED / cut, ffn = FFN * EMBED / cut;
  Block b = {.norm1 = p, .norm2 = p + EMBED};
  b.q = b.norm2 + EMBED, b.k = b.q + square, b.v = b.k + square, b.o = b.v + square;
  b.gate = b.o + square, b.up = b.gate + ffn, b.down = b.up + ffn;
  return b;
}

static inline int piece_size(int piece, int cut) {
  if (piece == EMBEDDING) return VOCAB * EMBED;
  if (piece == LAST) return EMBED + VOCAB * EMBED;
  return 2 * EMBED + (4 * EMBED * EMBED + 3 * FFN * EMBED) / cut;
}

// A number in [-1, 1) that depends on its arguments only, so that every rank begins with the same weights.
static inline double noise(unsigned what, unsigned i) {
  unsigned x = what * 0x9e3779b9u ^ i * 0x85ebca6bu ^ 0xc2b2ae35u;
  for (int k = 0; k < 3; k++) x = (x ^ x >> 15) * 0x2c1b3c6du;
  return (double)(x >> 8) / 8388608 - 1; // 24 bits: a float holds it
}

// The first weights of a whole piece: gains 1, all else noise.
static inline void piece_init(int piece, double *w) {
  int gains = piece == EMBEDDING ? 0 : piece == LAST ? EMBED : 2 * EMBED;
  for (int i = 0; i < piece_size(piece, 1); i++) w[i] = i < gains ? 1 : noise((unsigned)piece, (unsigned)i) / 4;
}

// Weights, their gradient, and the two moments of Adam: what is kept for a piece, or for a part of one.
typedef struct Piece { int size; double *w, *g, *m, *v; } Piece;

static inline Piece piece_create(int size) {
  double *p = calloc((size_t)size * 4, sizeof *p);
  if (!p) exit((perror("by_hand"), 1));
  return (Piece){size, p, p + size, p + 2 * size, p + 3 * size};
}
static inline void piece_free(Piece *p) { free(p->w); }

// Adam (Kingma and Ba, 2015), step 1, 2, …; the gradient starts at zero again.
static inline void adam(Piece *p, int step) {
  double rate = 0.01 / (1 - pow(0.9, step)), correction = sqrt(1 - pow(0.999, step));
  for (int i = 0; i < p->size; i++) {
    p->m[i] = 0.9 * p->m[i] + 0.1 * p->g[i];
    p->v[i] = 0.999 * p->v[i] + 0.001 * p->g[i] * p->g[i];
    p->w[i] -= rate * p->m[i] / (sqrt(p->v[i]) / correction + 1e-8);
    p->g[i] = 0;
  }
}

// Operations on one sequence; every backward adds to the gradients that it is given -----------------------------------

static inline void linear(double *y, const double *x, const double *w, int out, int in) { // y (SEQ, out), x (SEQ, in)
  for (int t = 0; t < SEQ; t++)
    for (int o = 0; o < out; o++) {
      double sum = 0;
      for (int i = 0; i < in; i++) sum += w[o * in + i] * x[t * in + i];
      y[t * out + o] = sum;
    }
}

static inline void linear_backward(double *dx, double *dw, const double *dy, const double *x, const double *w, int out,
                                   int in) {
  for (int t = 0; t < SEQ; t++)
    for (int o = 0; o < out; o++)
      for (int i = 0; i < in; i++) {
        dx[t * in + i] += dy[t * out + o] * w[o * in + i];
        dw[o * in + i] += dy[t * out + o] * x[t * in + i];
      }
}

static inline double inverse_rms(const double *x) {
  double sum = 0;
  for (int i = 0; i < EMBED; i++) sum += x[i] * x[i];
  return 1 / sqrt(sum / EMBED + 1e-5);
}

static inline void rms_norm(double *y, const double *x, const double *gain) {
  for (int t = 0; t < SEQ; t++)
    for (int i = 0; i < EMBED; i++) y[t * EMBED + i] = x[t * EMBED + i] * inverse_rms(x + t * EMBED) * gain[i];
}

static inline void rms_norm_backward(double *dx, double *dgain, const double *dy, const double *x, const double *gain) {
  for (int t = 0; t < SEQ; t++, dx += EMBED, dy += EMBED, x += EMBED) {
    double r = inverse_rms(x), dot = 0;
    for (int i = 0; i < EMBED; i++) dot += dy[i] * gain[i] * x[i] * r / EMBED;
    for (int i = 0; i < EMBED; i++) {
      dx[i] += (dy[i] * gain[i] - dot * x[i] * r) * r;
      dgain[i] += dy[i] * x[i] * r;
    }
  }
}

// Rotary positions (Su et al., 2021): turns the pairs (i, i + HEAD/2) of x (SEQ, heads, HEAD); direction -1 turns back.
static inline void rope(double *x, int heads, int direction) {
  for (int t = 0; t < SEQ; t++)
    for (int h = 0; h < heads; h++)
      for (int i = 0; i < HEAD / 2; i++) {
        double angle = direction * t * pow(10000, -2.0 * i / HEAD), *a = x + (t * heads + h) * HEAD + i,
               *b = a + HEAD / 2;
        double turned = *a * cos(angle) - *b * sin(angle);
        *b = *b * cos(angle) + *a * sin(angle);
        *a = turned;
      }
}

// Causal attention; q, k, v, y (SEQ, heads, HEAD), and the probabilities p (heads, SEQ, SEQ).
static inline void attention(double *y, double *p, const double *q, const double *k, const double *v, int heads) {
  int row = heads * HEAD;
  memset(y, 0, (size_t)(SEQ * row) * sizeof *y);
  for (int h = 0; h < heads; h++)
    for (int t = 0; t < SEQ; t++) {
      double *to = p + (h * SEQ + t) * SEQ, sum = 0;
      for (int u = 0; u <= t; u++) {
        double dot = 0;
        for (int i = h * HEAD; i < (h + 1) * HEAD; i++) dot += q[t * row + i] * k[u * row + i];
        sum += to[u] = exp(dot / sqrt(HEAD));
      }
      for (int u = 0; u <= t; u++) {
        to[u] /= sum;
        for (int i = h * HEAD; i < (h + 1) * HEAD; i++) y[t * row + i] += to[u] * v[u * row + i];
      }
    }
}

static inline void attention_gradients(double *dq, double *dk, double *dv, const double *dy, const double *p,
                                       const double *q, const double *k, const double *v, int heads) {
  int row = heads * HEAD;
  for (int h = 0; h < heads; h++)
    for (int t = 0; t < SEQ; t++) {
      const double *to = p + (h * SEQ + t) * SEQ;
      double dp[SEQ] = {0}, mean = 0;
      for (int u = 0; u <= t; u++) {
        for (int i = h * HEAD; i < (h + 1) * HEAD; i++) dp[u] += dy[t * row + i] * v[u * row + i];
        mean += to[u] * dp[u];
      }
      for (int u = 0; u <= t; u++)
        for (int i = h * HEAD; i < (h + 1) * HEAD; i++) {
          dv[u * row + i] += to[u] * dy[t * row + i];
          dq[t * row + i] += to[u] * (dp[u] - mean) / sqrt(HEAD) * k[u * row + i];
          dk[u * row + i] += to[u] * (dp[u] - mean) / sqrt(HEAD) * q[t * row + i];
        }
    }
}

// Layers --------------------------------------------------------------------------------------------------------------

// The values of a sequence that a block keeps for backward.
typedef struct Saved {
  double x[SEQ * EMBED], normed1[SEQ * EMBED], q[SEQ * EMBED], k[SEQ * EMBED], v[SEQ * EMBED], p[HEADS * SEQ * SEQ],
      mixed[SEQ * EMBED], middle[SEQ * EMBED], normed2[SEQ * EMBED], gate[SEQ * FFN], up[SEQ * FFN], hidden[SEQ * FFN];
} Saved;

// The two halves of a block, of HEADS / cut heads and FFN / cut hidden features. y (SEQ, EMBED) is what they add to the
// stream: all of it where cut is 1, else a term of a sum over the parts.
static inline void attention_forward(Block w, int cut, Saved *s, double *y) {
  int width = EMBED / cut, heads = HEADS / cut;
  rms_norm(s->normed1, s->x, w.norm1);
  linear(s->q, s->normed1, w.q, width, EMBED);
  linear(s->k, s->normed1, w.k, width, EMBED);
  linear(s->v, s->normed1, w.v, width, EMBED);
  rope(s->q, heads, 1);
  rope(s->k, heads, 1);
  attention(s->mixed, s->p, s->q, s->k, s->v, heads);
  linear(y, s->mixed, w.o, EMBED, width);
}

static inline void ffn_forward(Block w, int cut, Saved *s, double *y) {
  rms_norm(s->normed2, s->middle, w.norm2);
  linear(s->gate, s->normed2, w.gate, FFN / cut, EMBED);
  linear(s->up, s->normed2, w.up, FFN / cut, EMBED);
  for (int i = 0; i < SEQ * FFN / cut; i++) s->hidden[i] = s->gate[i] / (1 + exp(-s->gate[i])) * s->up[i];
  linear(y, s->hidden, w.down, EMBED, FFN / cut);
}

// From dy, the gradient of y, to that of what the norm gave: dnormed (SEQ, EMBED), again a term of a sum over the
// parts.
static inline void ffn_backward(Block w, Block g, int cut, const Saved *s, const double *dy, double *dnormed) {
  double dgate[SEQ * FFN], dup[SEQ * FFN], dhidden[SEQ * FFN] = {0};
  linear_backward(dhidden, g.down, dy, s->hidden, w.down, EMBED, FFN / cut);
  for (int i = 0; i < SEQ * FFN / cut; i++) {
    double sigmoid = 1 / (1 + exp(-s->gate[i]));
    dup[i] = dhidden[i] * s->gate[i] * sigmoid;
    dgate[i] = dhidden[i] * s->up[i] * sigmoid * (1 + s->gate[i] * (1 - sigmoid));
  }
  memset(dnormed, 0, SEQ * EMBED * sizeof *dnormed);
  linear_backward(dnormed, g.gate, dgate, s->normed2, w.gate, FFN / cut, EMBED);
  linear_backward(dnormed, g.up, dup, s->normed2, w.up, FFN / cut, EMBED);
}

static inline void attention_backward(Block w, Block g, int cut, const Saved *s, const double *dy, double *dnormed) {
  double dq[SEQ * EMBED] = {0}, dk[SEQ * EMBED] = {0}, dv[SEQ * EMBED] = {0}, dmixed[SEQ * EMBED] = {0};
  int width = EMBED / cut, heads = HEADS / cut;
  linear_backward(dmixed, g.o, dy, s->mixed, w.o, EMBED, width);
  attention_gradients(dq, dk, dv, dmixed, s->p, s->q, s->k, s->v, heads);
  rope(dq, heads, -1);
  rope(dk, heads, -1);
  memset(dnormed, 0, SEQ * EMBED * sizeof *dnormed);
  linear_backward(dnormed, g.q, dq, s->normed1, w.q, width, EMBED);
  linear_backward(dnormed, g.k, dk, s->normed1, w.k, width, EMBED);
  linear_backward(dnormed, g.v, dv, s->normed1, w.v, width, EMBED);
}

static inline void add(double *x, const double *y) {
  for (int i = 0; i < SEQ * EMBED; i++) x[i] += y[i];
}

// A whole block: x becomes x + attention + feed-forward, d its gradient. `weights` and `gradient` are a piece's arrays.
static inline void block_forward(double *weights, Saved *s, double *x) {
  Block w = block_at(weights, 1);
  double y[SEQ * EMBED];
  memcpy(s->x, x, sizeof s->x);
  attention_forward(w, 1, s, y);
  add(x, y);
  memcpy(s->middle, x, sizeof s->middle);
  ffn_forward(w, 1, s, y);
  add(x, y);
}

static inline void block_backward(double *weights, double *gradient, const Saved *s, double *d) {
  Block w = block_at(weights, 1), g = block_at(gradient, 1);
  double dnormed[SEQ * EMBED];
  ffn_backward(w, g, 1, s, d, dnormed);
  rms_norm_backward(d, g.norm2, dnormed, s->middle, w.norm2);
  attention_backward(w, g, 1, s, d, dnormed);
  rms_norm_backward(d, g.norm1, dnormed, s->x, w.norm1);
}

static inline void embed(const double *w, int sequence, double *x) {
  for (int t = 0; t < SEQ; t++) memcpy(x + t * EMBED, w + text[sequence * SEQ + t] * EMBED, EMBED * sizeof *x);
}

static inline void embed_backward(double *g, int sequence, const double *d) {
  for (int i = 0; i < SEQ * EMBED; i++) g[text[sequence * SEQ + i / EMBED] * EMBED + i % EMBED] += d[i];
}

// The end of the model: norm, head and cross entropy. Returns this sequence's part of the mean loss over all tokens of
// the batch; x becomes its gradient.
static inline double head_loss(double *w, double *g, int sequence, double *x) {
  double normed[SEQ * EMBED], dnormed[SEQ * EMBED] = {0}, logits[SEQ * VOCAB], loss = 0;
  double *head = w + EMBED, *dhead = g + EMBED;
  rms_norm(normed, x, w);
  linear(logits, normed, head, VOCAB, EMBED);
  for (int t = 0; t < SEQ; t++) {
    double *p = logits + t * VOCAB, sum = 0;
    int target = text[sequence * SEQ + t + 1];
    for (int i = 0; i < VOCAB; i++) sum += exp(p[i]);
    loss += (log(sum) - p[target]) / (BATCH * SEQ);
    for (int i = 0; i < VOCAB; i++) p[i] = (exp(p[i]) / sum - (i == target)) / (BATCH * SEQ);
  }
  linear_backward(dnormed, dhead, logits, normed, head, VOCAB, EMBED);
  double d[SEQ * EMBED] = {0};
  rms_norm_backward(d, g, dnormed, x, w);
  memcpy(x, d, sizeof d);
  return loss;
}

// The rest ------------------------------------------------------------------------------------------------------------

static inline void print_loss(int step, double loss) {
  if (step == 1 || step % 5 == 0) printf("step %2d  loss %.9f\n", step, loss);
}

// Memory for what backward needs: (LAYERS, BATCH).
static inline Saved (*saved_create(void))[BATCH] {
  Saved (*saved)[BATCH] = calloc(LAYERS, sizeof *saved);
  if (!saved) exit((perror("by_hand"), 1));
  return saved;
}
