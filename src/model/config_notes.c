// Keys of a config.json that plait does not read, where they might have been meant to change the model.
#include "base/nearest.h"
#include "base/vec.h"
#include "model/config.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// Keys that transformers writes beside the model (tokens, generation, training, its own bookkeeping, heads other than
// that of a language model), and keys that its families ignore without a switch that plait reads. Keys that begin with
// _ as well.
static const char harmless[] =
    " architectures auto_map transformers_version transformers.js_config torch_dtype dtype use_bfloat16 "
    "name_or_path tokenizer_class prefix revision keys_to_ignore_at_inference attn_implementation "
    "unsloth_version unsloth_fixed neftune_noise_alpha pretraining_tp is_llama_config rope_interleaved use_mrope "
    "n_ctx model_max_length max_sequence_length layer_types sliding_window max_window_layers use_sliding_window "
    "use_cache gradient_checkpointing tf_legacy_loss torchscript output_attentions output_hidden_states "
    "output_scores return_dict return_dict_in_generate chunk_size_feed_forward is_encoder_decoder is_decoder "
    "cross_attention_hidden_size add_cross_attention tie_encoder_decoder pruned_heads finetuning_task id2label "
    "label2id num_labels problem_type classifier_dropout summary_type summary_use_proj summary_activation "
    "summary_first_dropout summary_proj_to_labels task_specific_params bos_token_id eos_token_id pad_token_id "
    "sep_token_id unk_token_id cls_token_id mask_token_id decoder_start_token_id forced_bos_token_id "
    "forced_eos_token_id suppress_tokens begin_suppress_tokens bad_words_ids max_length max_new_tokens "
    "min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p "
    "typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "num_return_sequences remove_invalid_values exponential_decay_length_penalty generation_config ";

static bool is_harmless(const char *key) {
  char word[80];
  snprintf(word, sizeof word, " %s ", key);
  return *key == '_' || (strlen(key) < 70 && !strchr(key, ' ') && strstr(harmless, word));
}

typedef Vec(const char *) Words;

// The keys of one object that are read: those with its prefix, "rope_scaling." or "".
static Words known_below(const ModelConfig *c, const char *prefix) {
  Words words = {0};
  const char *name;
  json_t *value;
  size_t n = strlen(prefix);
  json_object_foreach(c->known, name, value)
    if (!strncmp(name, prefix, n) && !strchr(name + n, '.')) vec_push(&words, name);
  return words;
}

static void add(char **list, const char *name, const char *nearest) {
  char *old = *list;
  *list = xformat("%s%s%s%s%s%s", old ? old : "", old ? ", " : "", name, nearest ? " (did you mean " : "",
                  nearest ? nearest : "", nearest ? "?)" : "");
  free(old);
}

static void look_at(const ModelConfig *c, const char *prefix, const json_t *object, char **list) {
  Words known = known_below(c, prefix);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    char *name = xformat("%s%s", prefix, key), *below = xformat("%s.", name);
    bool read = json_object_get(c->known, name) != NULL;
    if (read && json_is_object(value)) look_at(c, below, value, list);
    else if (!read && !json_is_null(value) && !is_harmless(key))
      add(list, name, nearest_word(name, known.data, known.count));
    free(below);
    free(name);
  }
  vec_free(&known);
}

char *model_config_unread(const ModelConfig *c) {
  char *list = NULL;
  look_at(c, "", c->json, &list);
  return list;
}
