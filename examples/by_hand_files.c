// The model and the text of by_hand.h as files, so that a recipe can train the same: by_recipe.yaml.
//
//   by_hand_files FOLDER         writes config.json, model.safetensors, tokens.bin and tokens.idx into the folder
//
// The formats are Hugging Face's (a JSON header, then numbers) and Megatron's (token ids, and where documents begin).
#include "by_hand.h"
#include <stdint.h>

static FILE *create(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  return file ? file : (exit((perror(path), 1)), file);
}

static void finish(FILE *file) {
  if (ferror(file) | fclose(file)) exit((perror("by_hand_files"), 1));
}

static void write_config(const char *folder) {
  FILE *f = create(folder, "config.json");
  fprintf(f, "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d,\n", VOCAB,
          EMBED, FFN);
  fprintf(f, " \"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d,\n", LAYERS, HEADS,
          HEADS);
  fprintf(f, " \"max_position_embeddings\": %d, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5,\n", SEQ);
  fprintf(f, " \"rope_theta\": 10000.0, \"tie_word_embeddings\": false}\n");
  finish(f);
}

// Called twice: writes the tensor's line of the header, or (header NULL) its numbers as floats, which hold them
// exactly.
typedef struct Writer { FILE *header, *numbers; long offset; } Writer;

static void put(Writer *w, const char *name, const double *x, int rows, int columns) {
  int n = rows * columns;
  char first[16] = ""; // dim, of a matrix
  if (rows > 1) snprintf(first, sizeof first, "%d, ", rows);
  if (w->header)
    fprintf(w->header, "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [%s%d], \"data_offsets\": [%ld, %ld]}",
            w->offset ? ", " : "{", name, first, columns, w->offset, w->offset + n * 4L);
  for (int i = 0; i < n && w->numbers; i++) fwrite(&(float){(float)x[i]}, sizeof(float), 1, w->numbers);
  w->offset += n * 4L;
}

static void put_block(Writer *w, int layer, double *piece) {
  Block b = block_at(piece, 1);
  const struct { const char *name; const double *x; int rows, columns; } tensors[] = {
      {"input_layernorm", b.norm1, 1, EMBED},         {"self_attn.q_proj", b.q, EMBED, EMBED},
      {"self_attn.k_proj", b.k, EMBED, EMBED},        {"self_attn.v_proj", b.v, EMBED, EMBED},
      {"self_attn.o_proj", b.o, EMBED, EMBED},        {"post_attention_layernorm", b.norm2, 1, EMBED},
      {"mlp.gate_proj", b.gate, FFN, EMBED},          {"mlp.up_proj", b.up, FFN, EMBED},
      {"mlp.down_proj", b.down, EMBED, FFN},
  };
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    char name[96];
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, tensors[i].name);
    put(w, name, tensors[i].x, tensors[i].rows, tensors[i].columns);
  }
}

static void put_model(Writer *w, Piece *model) {
  put(w, "model.embed_tokens.weight", model[EMBEDDING].w, VOCAB, EMBED);
  for (int l = 0; l < LAYERS; l++) put_block(w, l, model[FIRST_BLOCK + l].w);
  put(w, "model.norm.weight", model[LAST].w, 1, EMBED);
  put(w, "lm_head.weight", model[LAST].w + EMBED, VOCAB, EMBED);
}

static void write_weights(const char *folder) {
  Piece model[PIECES];
  for (int k = 0; k < PIECES; k++) model[k] = piece_create(piece_size(k, 1)), piece_init(k, model[k].w);
  char *text_of_header;
  size_t size;
  FILE *header = open_memstream(&text_of_header, &size), *f = create(folder, "model.safetensors");
  put_model(&(Writer){.header = header}, model);
  fputc('}', header);
  fclose(header);
  fwrite(&(uint64_t){size}, 8, 1, f);
  fwrite(text_of_header, 1, size, f);
  put_model(&(Writer){.numbers = f}, model);
  finish(f);
  free(text_of_header);
  for (int k = 0; k < PIECES; k++) piece_free(&model[k]);
}

static void write_tokens(const char *folder) {
  int32_t n = BATCH * SEQ + 1;
  FILE *bin = create(folder, "tokens.bin"), *idx = create(folder, "tokens.idx");
  for (int i = 0; i < n; i++) fwrite(&(uint16_t){(uint16_t)text[i]}, 2, 1, bin);
  fwrite("MMIDIDX\0", 9, 1, idx);
  fwrite(&(uint64_t){1}, 8, 1, idx);         // version
  fputc(8, idx);                             // uint16
  fwrite((uint64_t[]){1, 2}, 8, 2, idx);     // sequences, documents + 1
  fwrite(&n, 4, 1, idx);                     // tokens of the sequence
  fwrite((int64_t[]){0, 0, 1}, 8, 3, idx);   // its first byte; first sequence of each document, and of none
  finish(bin);
  finish(idx);
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: by_hand_files FOLDER\n"), 2;
  write_config(argv[1]);
  write_weights(argv[1]);
  write_tokens(argv[1]);
  return 0;
}
