// config.json: what is read, what is refused and how, what is written back; counts against known models.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/file.h"
#include "model/config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPT2                                                                                                           \
  "\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 32, \"n_head\": 4, \"n_positions\": 64, \"vocab_size\": 97"
#define LLAMA                                                                                                          \
  "\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"intermediate_size\": 56, "              \
  "\"num_attention_heads\": 4, \"vocab_size\": 97"

static ModelConfig parse(const char *text) {
  ModelConfig c;
  Error error = {0};
  if (model_config_parse(&c, text, strlen(text), "config.json", &error)) fail_msg("%s: %s", text, error.message);
  return c;
}

static void test_gpt2(void **state) {
  ModelConfig c = parse("{" GPT2 "}"); // the rest are Hugging Face's defaults
  assert_string_equal(model_family_name(c.family), "gpt2");
  assert_true(c.layers == 2 && c.embed == 32 && c.heads == 4 && c.kv_heads == 4 && c.head_dim == 8 && c.ffn == 128);
  assert_true(c.vocab == 97 && c.positions == 64 && c.tied && c.qkv_bias && c.ffn_bias);
  assert_true(c.activation == ACTIVATION_GELU_TANH && c.norm_epsilon == 1e-5 && c.initializer_range == 0.02);
  assert_true(c.residual_dropout == 0.1 && c.embedding_dropout == 0.1 && c.attention_dropout == 0.1);
  assert_true(c.attention_scale == 1 / sqrt(8));
  model_config_free(&c);
  c = parse(
      "{" GPT2
      ", \"n_inner\": 40, \"activation_function\": \"relu\", \"tie_word_embeddings\": false, \"attn_pdrop\": 0,"
      "\"scale_attn_weights\": false, \"scale_attn_by_inverse_layer_idx\": false, \"quantization_config\": null}");
  assert_true(c.ffn == 40 && c.activation == ACTIVATION_RELU && !c.tied && c.attention_dropout == 0 &&
              c.attention_scale == 1);
  model_config_free(&c);
  model_config_free(&c);
}

static void test_llama(void **state) {
  ModelConfig c = parse("{" LLAMA "}");
  assert_string_equal(model_family_name(c.family), "llama");
  assert_true(c.layers == 2 && c.embed == 32 && c.heads == 4 && c.kv_heads == 4 && c.head_dim == 8 && c.ffn == 56);
  assert_true(!c.tied && !c.qkv_bias && !c.ffn_bias && c.activation == ACTIVATION_SILU && c.norm_epsilon == 1e-6);
  assert_true(c.rope.theta == 10000 && c.rope.scaling == 0 && c.attention_dropout == 0 && c.positions == 2048);
  model_config_free(&c);
  c = parse("{" LLAMA
            ", \"num_key_value_heads\": 2, \"head_dim\": 16, \"rope_theta\": 500000, \"attention_bias\": true, "
            "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1.0, "
            "\"high_freq_factor\": 4.0, "
            "\"original_max_position_embeddings\": 8192}}");
  assert_true(c.kv_heads == 2 && c.head_dim == 16 && c.rope.theta == 500000 && c.qkv_bias && c.attention_scale == 0.25);
  assert_true(c.rope.scaling == 1 && c.rope.factor == 8 && c.rope.low_frequency_factor == 1 &&
              c.rope.high_frequency_factor == 4 && c.rope.original_positions == 8192);
  model_config_free(&c);
  c = parse("{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}");
  assert_true(c.rope.scaling == 2 && c.rope.factor == 2.5);
  model_config_free(&c);
  c = parse("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1234.5}}"); // transformers 5
  assert_true(c.rope.scaling == 0 && c.rope.theta == 1234.5);
  model_config_free(&c);
}

// Pairs of files that mean the same model, spelled as transformers 4, 5 or others spell it.
static void test_spellings(void **state) {
#define LINEAR "{\"type\": \"linear\", \"factor\": 2.0}"
#define SMALL                                                                                                          \
  "\"hidden_size\": 32, \"intermediate_size\": 56, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "           \
  "\"num_hidden_layers\": 2, \"vocab_size\": 97"
  static const struct { const char *a, *b; } pairs[] = {
      {"{" LLAMA ", \"rope_theta\": 10000.0, \"rope_scaling\": " LINEAR "}",
       "{" LLAMA ", \"rope_theta\": 10000.0, \"rope_scaling\": " LINEAR
       ", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 10000}}"},
      {"{" LLAMA ", \"rope_theta\": 5e5, \"rope_scaling\": " LINEAR "}",
       "{" LLAMA ", \"rope_scaling\": " LINEAR
       ", \"rope_parameters\": {\"type\": \"linear\", \"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 5e5}}"},
      {"{" LLAMA ", \"rope_theta\": 5e5, \"rope_scaling\": " LINEAR "}",
       "{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"rope_theta\": 5e5}"
       ", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2}}"},
      {"{" LLAMA ", \"rope_theta\": 5e5}", "{" LLAMA ", \"rope_parameters\": {\"rope_theta\": 5e5}}"},
      {"{" LLAMA ", \"rope_theta\": 5e5}", "{" LLAMA ", \"rope_theta\": 5e5, \"rope_scaling\": {}}"},
      {"{" LLAMA ", \"head_dim\": 16}", "{" LLAMA ", \"head_dim\": 16.0, \"partial_rotary_factor\": 1}"},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
       "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}}",
       "{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
       "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64.0, \"rope_theta\": 10000}}"},
      {"{" GPT2 ", \"n_inner\": 1000}", "{" GPT2 ", \"n_inner\": 1e3, \"num_hidden_layers\": 2.0}"},
      {"{" GPT2 "}", "{\"model_type\": \"gpt2\", \"num_hidden_layers\": 2, \"hidden_size\": 32, "
                     "\"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"vocab_size\": 97}"},
      {"{\"model_type\": \"mixtral\", " SMALL ", \"num_local_experts\": 6}",
       "{\"model_type\": \"mixtral\", " SMALL ", \"num_experts\": 6.0}"},
      {"{\"model_type\": \"qwen2_moe\", " SMALL ", \"moe_intermediate_size\": 12, \"num_experts\": 6, "
       "\"mlp_only_layers\": [1]}",
       "{\"model_type\": \"qwen2_moe\", " SMALL ", \"moe_intermediate_size\": 12.0, \"num_local_experts\": 6, "
       "\"num_experts\": 6.0, \"mlp_only_layers\": [1.0]}"},
      {"{\"model_type\": \"gpt_neo\", \"num_layers\": 2, \"hidden_size\": 32, \"num_heads\": 4, "
       "\"max_position_embeddings\": 64, \"vocab_size\": 97, \"attention_types\": [[[\"global\"], 2]]}",
       "{\"model_type\": \"gpt_neo\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, "
       "\"max_position_embeddings\": 64, \"vocab_size\": 97, \"attention_types\": [[[\"global\"], 2.0]]}"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    ModelConfig a = parse(pairs[i].a), b = parse(pairs[i].b);
    if (!model_config_equal(&a, &b)) fail_msg("%s\n  does not mean what this does:\n%s", pairs[i].b, pairs[i].a);
    assert_null(model_config_unread(&b));
    model_config_free(&a);
    model_config_free(&b);
  }
}

#define ROTARY                                                                                                         \
  "\"num_hidden_layers\": 2, \"hidden_size\": 32, \"intermediate_size\": 56, \"num_attention_heads\": 8, "             \
  "\"vocab_size\": 97"
#define QWEN2 "\"model_type\": \"qwen2\", " ROTARY ", \"num_key_value_heads\": 4"
#define QWEN3 "\"model_type\": \"qwen3\", " ROTARY ", \"num_key_value_heads\": 4"
#define MISTRAL "\"model_type\": \"mistral\", " ROTARY
#define NEO                                                                                                            \
  "\"model_type\": \"gpt_neo\", \"num_layers\": 2, \"hidden_size\": 32, \"num_heads\": 4, "                            \
  "\"max_position_embeddings\": 64, \"vocab_size\": 97"
#define MIXTRAL "\"model_type\": \"mixtral\", " ROTARY ", \"num_local_experts\": 5"
#define QWEN_MOE                                                                                                       \
  "\"num_hidden_layers\": 6, \"hidden_size\": 32, \"intermediate_size\": 56, \"num_attention_heads\": 8, "             \
  "\"vocab_size\": 97, \"num_key_value_heads\": 4, \"num_experts\": 8, \"moe_intermediate_size\": 12"
#define QWEN2_MOE "\"model_type\": \"qwen2_moe\", " QWEN_MOE
#define QWEN3_MOE "\"model_type\": \"qwen3_moe\", " QWEN_MOE
#define TYPES ", \"attention_types\": [[[\"global\", \"local\"], 1]]"

// What transformers' classes take where a key is absent, and where it is null; files of transformers 4 and 5.
static void test_defaults(void **state) {
  ModelConfig c = parse("{" QWEN2 "}");
  assert_true(c.kv_heads == 4 && c.head_dim == 4 && c.qkv_bias && !c.output_bias && !c.ffn_bias && !c.head_norm &&
              !c.tied);
  assert_true(c.positions == 32768 && c.rope.theta == 10000 && !c.window && !c.facts.longest &&
              c.attention_scale == 0.5);
  model_config_free(&c);
  c = parse("{" QWEN2 ", \"attention_bias\": false, \"dtype\": \"bfloat16\", "
            "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}, \"layer_types\": "
            "[\"full_attention\", \"full_attention\"]}");
  assert_true(c.qkv_bias && c.rope.theta == 1e6 && !c.window); // the class has its biases whatever the key says
  model_config_free(&c);
  c = parse("{\"model_type\": \"qwen2\", " ROTARY ", \"num_key_value_heads\": null}");
  assert_true(c.kv_heads == 8);
  model_config_free(&c);

  c = parse("{" QWEN3 "}");
  assert_true(c.head_dim == 128 && c.head_norm && !c.qkv_bias && !c.output_bias && c.attention_scale == 1 / sqrt(128));
  assert_int_equal(c.facts.size[DIM_HEAD_DIM], 128);
  model_config_free(&c);
  c = parse("{" QWEN3 ", \"head_dim\": 6, \"attention_bias\": true, \"rope_theta\": 5e5, \"rope_scaling\": null}");
  assert_true(c.head_dim == 6 && c.qkv_bias && c.output_bias && c.rope.theta == 5e5);
  model_config_free(&c);

  c = parse("{" MISTRAL "}");
  assert_true(c.kv_heads == 8 && c.head_dim == 4 && c.window == 4096 && c.facts.longest == 4096);
  model_config_free(&c);
  c = parse("{" MISTRAL ", \"sliding_window\": null, \"head_dim\": 10}");
  assert_true(!c.window && !c.facts.longest && c.head_dim == 10 && !c.qkv_bias);
  model_config_free(&c);

  c = parse("{" NEO TYPES "}");
  assert_true(c.ffn == 128 && c.attention_scale == 1 && !c.qkv_bias && c.output_bias && c.ffn_bias && c.tied &&
              c.head_dim == 8);
  assert_true(c.embedding_dropout == 0 && c.window == 256 && c.facts.longest == 64); // the positions are fewer
  model_config_free(&c);
  c = parse("{" NEO ", \"attention_layers\": [\"global\", \"global\"], \"window_size\": 8, \"intermediate_size\": 40}");
  assert_true(c.ffn == 40 && !c.window);
  model_config_free(&c);
}

// Which layers have experts, as bits.
static uint64_t expert_layers(const ModelConfig *c) { return c->expert_layers[0]; }

static void test_experts(void **state) {
  ModelConfig c = parse("{" MIXTRAL "}");
  assert_true(c.kv_heads == 8 && c.norm_epsilon == 1e-5 && c.rope.theta == 1e6 && !c.window && !c.qkv_bias);
  assert_true(c.experts == 5 && c.experts_per_token == 2 && c.expert_ffn == 56 && c.norm_topk && !c.shared_ffn &&
              c.router_aux_loss_coef == 0.001 && expert_layers(&c) == 3);
  int64_t one = 3 * 32 * 56, rest = c.facts.parameters - 2 * 5 * one; // an expert
  assert_true(c.facts.active == rest + 2 * 2 * one && c.facts.multiplied == c.facts.active - 97 * 32);
  assert_true(model_config_flops_per_token(&c, 10) == 6 * (double)c.facts.multiplied + 6.0 * 2 * 32 * 11);
  assert_true(c.facts.size[DIM_EXPERT] == 5 && c.facts.size[DIM_EXPERT_FFN] == 56 && !c.facts.size[DIM_FFN]);
  model_config_free(&c);
  c = parse("{" MIXTRAL ", \"num_experts_per_tok\": 5, \"sliding_window\": 16, \"router_aux_loss_coef\": 0.02,"
            "\"router_jitter_noise\": 0.0, \"output_router_logits\": true, \"num_experts\": 5}");
  assert_true(c.experts_per_token == 5 && c.facts.longest == 16 && c.router_aux_loss_coef == 0.02);
  assert_true(c.facts.active == c.facts.parameters);
  model_config_free(&c);

  c = parse("{" QWEN2_MOE "}");
  assert_true(c.kv_heads == 4 && c.qkv_bias && !c.output_bias && !c.head_norm && !c.norm_topk && !c.window);
  assert_true(c.experts == 8 && c.experts_per_token == 4 && c.expert_ffn == 12 && c.shared_ffn == 5632 &&
              c.ffn == 56 && expert_layers(&c) == 63);
  model_config_free(&c);
  c = parse("{" QWEN2_MOE ", \"qkv_bias\": false, \"shared_expert_intermediate_size\": 20, \"norm_topk_prob\": true,"
            "\"mlp_only_layers\": [0, 3], \"decoder_sparse_step\": 2}");
  assert_true(!c.qkv_bias && c.shared_ffn == 20 && c.norm_topk && expert_layers(&c) == (2 | 32));
  assert_true(c.facts.size[DIM_FFN] == 4); // 56 and 20
  const char *block[2] = {"", ""};
  for (int i = 0; i < c.facts.widths; i++)
    if (c.facts.width[i].dim == DIM_FFN) block[c.facts.width[i].size == 20] = c.facts.width[i].of;
  assert_string_equal(block[0], "layer.0.ffn.gate");
  assert_string_equal(block[1], "layer.1.shared.gate");
  ModelConfig other = parse("{" QWEN2_MOE ", \"qkv_bias\": false, \"shared_expert_intermediate_size\": 20, "
                            "\"norm_topk_prob\": true, \"mlp_only_layers\": [0], \"decoder_sparse_step\": 2}");
  assert_false(model_config_equal(&c, &other));
  model_config_free(&other);
  model_config_free(&c);

  c = parse("{" QWEN3_MOE "}");
  assert_true(c.head_dim == 4 && c.head_norm && !c.qkv_bias && c.experts_per_token == 8 && !c.shared_ffn &&
              !c.norm_topk && !c.window);
  model_config_free(&c);
  c = parse("{\"model_type\": \"qwen3_moe\", " ROTARY ", \"num_local_experts\": 8, \"moe_intermediate_size\": 12,"
            "\"mlp_only_layers\": [], \"attention_bias\": true, \"use_sliding_window\": true}"); // transformers 5
  assert_true(c.experts == 8 && c.kv_heads == 4 && c.window == 4096 && c.output_bias);
  model_config_free(&c);
}

// A window is refused where sequences are longer than it, by its key, and has no effect where they are not.
static void test_lengths(void **state) {
  static const struct { const char *text; int64_t longest; const char *says;
  } table[] = {
      {"{" GPT2 "}", 64, "config.json: n_positions is 64, but --window is 65; take at most 64"},
      {"{" NEO ", \"attention_types\": [[[\"global\"], 2]], \"window_size\": 8}", 64,
       "max_position_embeddings is 64, but --window is 65; take at most 64"},
      {"{" NEO TYPES ", \"window_size\": 8}", 8,
       "window_size is 8, but --window is 9; take at most 8, because attention within a window is not built yet"},
      {"{" NEO ", \"attention_layers\": [\"local\", \"global\"], \"window_size\": 9}", 9, "window_size is 9"},
      {"{" MISTRAL ", \"sliding_window\": 16}", 16,
       "sliding_window is 16, but --window is 17; take at most 16, because"},
      {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 16, \"max_window_layers\": 1}", 16,
       "sliding_window is 16"},
      {"{" QWEN3 ", \"use_sliding_window\": true, \"max_window_layers\": 0}", 4096, "sliding_window is 4096"},
      {"{" QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 16, \"layer_types\": [\"full_attention\", "
                 "\"sliding_attention\"]}",
       16, "sliding_window is 16"},
      {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 16}", 0,
       NULL}, // of 28 layers without, there are 2
      {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0}", 0, NULL},
      {"{" QWEN2 ", \"sliding_window\": 16, \"max_window_layers\": 0}", 0, NULL},
      {"{" QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 16, \"max_window_layers\": 0, \"layer_types\": "
                 "[\"full_attention\", \"full_attention\"]}",
       0, NULL},
      {"{" QWEN2_MOE ", \"use_sliding_window\": true, \"sliding_window\": 16}", 16, "sliding_window is 16"},
      {"{" QWEN3_MOE ", \"use_sliding_window\": true, \"sliding_window\": 16}", 16, "sliding_window is 16"},
      {"{" QWEN3_MOE ", \"sliding_window\": 16, \"max_window_layers\": 0}", 0, NULL},
      {"{" LLAMA "}", 0, NULL},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    ModelConfig c = parse(table[i].text);
    Error error = {0};
    int64_t longest = table[i].longest;
    if (c.facts.longest != longest) fail_msg("%s: %lld", table[i].text, (long long)c.facts.longest);
    assert_int_equal(model_check_length(&c, "--window", longest ? longest : 1 << 20, &error), PLAIT_OK);
    assert_int_equal(model_usual_length(&c), longest ? longest : c.positions);
    if (longest && (model_check_length(&c, "--window", longest + 1, &error) != PLAIT_BAD_INPUT ||
                    !strstr(error.message, table[i].says)))
      fail_msg("%s: %s", table[i].text, error.message);
    model_config_free(&c);
  }
}

static void test_refusals(void **state) {
  static const struct { const char *text, *says;
  } table[] = {
      {"", "not valid JSON"},
      {"{", "line 1"},
      {"[]", "not a JSON object"},
      {"{}", "the key model_type is missing; allowed: gpt2, llama, qwen2, qwen3, mistral, gpt_neo, mixtral, qwen2_moe, "
             "qwen3_moe"},
      {"{\"model_type\": \"bert\"}",
       "model_type is \"bert\"; allowed: gpt2, llama, qwen2, qwen3, mistral, gpt_neo, mixtral, qwen2_moe, qwen3_moe"},
      {"{\"model_type\": 3}",
       "model_type is 3; allowed: gpt2, llama, qwen2, qwen3, mistral, gpt_neo, mixtral, qwen2_moe, qwen3_moe"},
      {"{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}", "the key n_layer is missing"}, // the last one counts
      {"{\"model_type\": \"gpt2\"}", "the key n_layer is missing; allowed: an integer from 1"},
      {"{" GPT2 ", \"n_inner\": 0}", "n_inner is 0; allowed: an integer from 1"},
      {"{" GPT2 ", \"n_inner\": -4}", "n_inner is -4"},
      {"{" GPT2 ", \"n_inner\": 40.5}", "n_inner is 40.5; allowed: an integer"},
      {"{" GPT2 ", \"num_hidden_layers\": 3}", "num_hidden_layers is 3; allowed: the same as n_layer, or only one"},
      {"{" GPT2 ", \"n_inner\": 99999999999999999999}", "n_inner is 1e20"},
      {"{" GPT2 ", \"n_inner\": 9999999999999999}", "n_inner is 9999999999999999"},
      {"{" GPT2 ", \"n_inner\": \"40\"}", "n_inner is \"40\""},
      {"{" GPT2 ", \"n_inner\": {}}", "n_inner is {}"},
      {"{" GPT2 ", \"layer_norm_epsilon\": 0}", "layer_norm_epsilon is 0; allowed: a number above 0"},
      {"{" GPT2 ", \"layer_norm_epsilon\": \"nan\"}", "layer_norm_epsilon"},
      {"{" GPT2 ", \"resid_pdrop\": 1.0}", "resid_pdrop is 1.0; allowed: a number from 0 and below 1"},
      {"{" GPT2 ", \"attn_pdrop\": -0.1}", "attn_pdrop is -0.1"},
      {"{" GPT2 ", \"tie_word_embeddings\": 1}", "tie_word_embeddings is 1; allowed: true or false"},
      {"{" GPT2 ", \"activation_function\": \"gelu_fast\"}", "activation_function is \"gelu_fast\"; allowed: gelu_new"},
      {"{" GPT2 ", \"activation_function\": 7}", "activation_function is 7"},
      {"{" GPT2 ", \"scale_attn_by_inverse_layer_idx\": true}",
       "scale_attn_by_inverse_layer_idx is true; allowed: only false"},
      {"{" GPT2 ", \"reorder_and_upcast_attn\": true}", "reorder_and_upcast_attn is true"},
      {"{" GPT2 ", \"add_cross_attention\": true}", "add_cross_attention is true"},
      {"{" GPT2 ", \"quantization_config\": {\"bits\": 4}}", "quantization_config is"},
      {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 33, \"n_head\": 4, \"n_positions\": 64, \"vocab_size\": "
       "97}",
       "n_embd is 33; allowed: a multiple of n_head, which is 4"},
      {"{" LLAMA ", \"num_key_value_heads\": 3}",
       "num_attention_heads is 4; allowed: a multiple of num_key_value_heads, which is 3"},
      {"{" LLAMA ", \"num_key_value_heads\": 0}", "num_key_value_heads is 0"},
      {"{" LLAMA ", \"head_dim\": 7}", "head_dim is 7; allowed: even numbers"},
      {"{" LLAMA ", \"hidden_act\": \"tanh\"}", "hidden_act is \"tanh\""},
      {"{" LLAMA ", \"rope_theta\": 0}", "rope_theta is 0"},
      {"{" LLAMA ", \"rope_scaling\": 4}", "rope_scaling is 4; allowed: an object or null"},
      {"{" LLAMA ", \"rope_scaling\": {\"factor\": 2.0}}", "the key rope_scaling.rope_type is missing"},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"default\", \"factor\": 2.0}}",
       "rope_scaling.type is \"linear\"; allowed: the same as rope_scaling.rope_type, or only one of them"},
      {"{" LLAMA ", \"rope_theta\": 1e6, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4}}",
       "rope_parameters.rope_theta is 10000.0; allowed: the same as rope_theta, or only one of them"},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}}",
       "rope_scaling.type is \"yarn\"; allowed: \"llama3\", \"linear\""},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}", "the key rope_scaling.factor is missing"},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": -1}}", "rope_scaling.factor is -1"},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
       "\"high_freq_factor\": 4, "
       "\"original_max_position_embeddings\": 64}}",
       "rope_scaling.high_freq_factor is 4; allowed: a number above 4"},
      {"{" GPT2 ", \"pruned_heads\": {\"0\": [1]}}", "pruned_heads is {\"0\":[1]}; allowed: only {}"},
      {"{" LLAMA
       ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_type\": \"default\"}}",
       "allowed: null, because there is rope_parameters"},
      {"{" LLAMA ", \"quantization_config\": {\"bits\": 4}}", "quantization_config is"},
      {"{" QWEN3 ", \"is_causal\": false}", "is_causal is false; allowed: only true"},
      {"{" QWEN2 ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0}}",
       "rope_parameters.rope_type is \"yarn\"; allowed:"},
      {"{" QWEN2 ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4.0}}",
       "rope_scaling.type is \"dynamic\"; allowed:"},
      {"{" QWEN2 ", \"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}}",
       "rope_parameters.partial_rotary_factor is 0.5"},
      {"{" QWEN2 ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}}",
       "the key rope_parameters.rope_type is missing"},
      {"{\"model_type\": \"qwen2\", " ROTARY "}",
       "num_attention_heads is 8; allowed: a multiple of num_key_value_heads, which is missing and then means 32"},
      {"{" QWEN2 ", \"layer_types\": [\"full_attention\"]}",
       "layer_types is [\"full_attention\"]; allowed: a list of num_hidden_layers words"},
      {"{" QWEN2 ", \"layer_types\": [\"full_attention\", \"chunked_attention\"]}",
       "layer_types is \"chunked_attention\"; allowed: \"full_attention\""},
      {"{" QWEN3 ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}", "asks for no window"},
      {"{" QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 0}",
       "sliding_window is 0; allowed: an integer from 1"},
      {"{" QWEN3 ", \"head_dim\": 7}", "head_dim is 7; allowed: even numbers"},
      {"{" MISTRAL ", \"layer_types\": [\"sliding_attention\", \"full_attention\"]}", "layer_types is"},
      {"{" MISTRAL ", \"sliding_window\": \"no\"}", "sliding_window is \"no\""},
      {"{" NEO "}", "attention_types is missing and then means 24 layers; allowed: num_layers, which is 2"},
      {"{" NEO ", \"attention_types\": [[[\"global\"], 3]]}",
       "attention_types lists 3 layers; allowed: num_layers, which is 2"},
      {"{" NEO ", \"attention_types\": [[[\"banded\"], 2]]}",
       "attention_types is \"banded\"; allowed: \"global\" or \"local\""},
      {"{" NEO ", \"attention_types\": [[\"global\", 2]]}", "attention_types is \"global\"; allowed: lists of"},
      {"{" NEO ", \"attention_types\": [[[\"global\"]]]}", "attention_types is [[[\"global\"]]]; allowed: a list of"},
      {"{" NEO ", \"attention_layers\": [\"global\", \"local\", \"global\"]}", "attention_layers lists 3 layers"},
      {"{" NEO TYPES ", \"attention_layers\": [\"global\", \"global\"]}",
       "attention_layers and attention_types differ"},
      {"{\"model_type\": \"gpt_neo\", \"num_layers\": 2, \"hidden_size\": 33, \"num_heads\": 4, "
       "\"max_position_embeddings\": 64, \"vocab_size\": 97" TYPES "}",
       "hidden_size is 33; allowed: a multiple of num_heads"},
      {"{\"model_type\": \"mixtral\", " ROTARY "}", "the key num_local_experts is missing; allowed: an integer from 1"},
      {"{" MIXTRAL ", \"num_experts\": 6}",
       "num_experts is 6; allowed: the same as num_local_experts, or only one of them"},
      {"{" MIXTRAL ", \"num_experts_per_tok\": 6}",
       "num_experts_per_tok is 6; allowed: at most num_local_experts, which is 5"},
      {"{" MIXTRAL ", \"router_jitter_noise\": 0.1}", "router_jitter_noise is 0.1; allowed: only 0.0"},
      {"{" MIXTRAL ", \"router_aux_loss_coef\": -1}", "router_aux_loss_coef is -1; allowed: a number from 0"},
      {"{" QWEN2_MOE ", \"mlp_only_layers\": [6]}", "mlp_only_layers is [6]; allowed: a list of layers, from 0 to 5"},
      {"{" QWEN2_MOE ", \"mlp_only_layers\": 1}", "mlp_only_layers is 1; allowed: a list of layers, from 0 to 5"},
      {"{" QWEN2_MOE ", \"decoder_sparse_step\": 0}", "decoder_sparse_step is 0; allowed: an integer from 1"},
      {"{" QWEN3_MOE ", \"norm_topk_prob\": 1}", "norm_topk_prob is 1; allowed: true or false"},
      {"{\"model_type\": \"qwen3_moe\", " ROTARY ", \"num_key_value_heads\": 4, \"num_experts\": 8}",
       "the key moe_intermediate_size is missing"},
      {"{" LLAMA ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor is 0.5; allowed: only 1.0"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    ModelConfig c;
    Error error = {0};
    int code = model_config_parse(&c, table[i].text, strlen(table[i].text), "some/config.json", &error);
    model_config_free(&c);
    if (code != PLAIT_BAD_INPUT || strncmp(error.message, "some/config.json: ", 18) ||
        !strstr(error.message, table[i].says))
      fail_msg("%s\n  gave %d: %s\n  expected: %s", table[i].text, code, error.message, table[i].says);
  }
}

// Every prefix of a good file, and every single byte of it changed, is either refused with a sentence or read.
static void test_hostile(void **state) {
  static const char good[] =
      "{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}, \"mlp_bias\": null}";
  char text[sizeof good];
  for (size_t i = 0; i < sizeof good; i++)
    for (int byte = 0; byte < 256; byte += byte % 16 ? 7 : 1) {
      memcpy(text, good, sizeof good);
      text[i] = (char)byte;
      ModelConfig c;
      Error error = {0};
      int code = model_config_parse(&c, text, byte ? sizeof good - 1 : i, "c", &error);
      assert_true(code == PLAIT_OK || (code == PLAIT_BAD_INPUT && error.message[0]));
      model_config_free(&c);
    }
  size_t deep = 100000;
  char *nested = malloc(deep);
  memset(nested, '[', deep);
  ModelConfig c;
  Error error = {0};
  assert_int_equal(model_config_parse(&c, nested, deep, "c", &error), PLAIT_BAD_INPUT);
  model_config_free(&c);
  free(nested);
  error = (Error){0};
  assert_int_equal(model_config_load(&c, "/nonexistent/config.json", &error), PLAIT_BAD_INPUT);
  model_config_free(&c);
  error = (Error){0};
  assert_int_equal(model_config_load(&c, "/dev/zero", &error), PLAIT_BAD_INPUT); // endless
  model_config_free(&c);
}

static void test_write(void **state) {
  char folder[] = "/tmp/plait-config-XXXXXX", *path;
  Error error = {0};
  assert_non_null(mkdtemp(folder));
  path = xformat("%s/config.json", folder);
  ModelConfig c = parse("{" GPT2 ", \"layer_norm_epsilon\": 1e-05, \"initializer_range\": 0.1, \"rope\": {\"a\": [1, "
                                 "2.5, \"\\u00e9\", null]}}"),
              again;
  assert_int_equal(model_config_save(&c, path, "bfloat16", &error), PLAIT_OK);
  char *text;
  assert_int_equal(file_read(path, 1 << 20, &text, NULL, &error), PLAIT_OK);
  assert_non_null(strstr(text, "\"layer_norm_epsilon\": 1e-05"));
  assert_non_null(strstr(text, "\"initializer_range\": 0.1"));
  assert_non_null(strstr(text, "\"torch_dtype\": \"bfloat16\""));
  assert_non_null(strstr(text, "GPT2LMHeadModel"));
  free(text);
  assert_int_equal(model_config_load(&again, folder, &error), PLAIT_OK); // by its folder
  assert_true(model_config_equal(&c, &again));
  assert_true(json_equal(json_object_get(c.json, "rope"), json_object_get(again.json, "rope")));
  json_t *known = json_copy(again.json);
  json_object_del(known, "architectures");
  json_object_del(known, "torch_dtype");
  assert_true(json_equal(known, c.json));
  json_decref(known);
  json_object_set_new(c.json, "dtype", json_string("float32")); // both names of one fact say the same afterwards
  json_object_set_new(c.json, "torch_dtype", json_string("float32"));
  assert_int_equal(model_config_save(&c, path, "float16", &error), PLAIT_OK);
  assert_int_equal(file_read(path, 1 << 20, &text, NULL, &error), PLAIT_OK);
  assert_non_null(strstr(text, "\"torch_dtype\": \"float16\""));
  assert_non_null(strstr(text, "\"dtype\": \"float16\""));
  free(text);
  again.norm_epsilon = 2e-5;
  assert_false(model_config_equal(&c, &again));
  model_config_free(&again);
  assert_int_equal(model_config_save(&c, "/nonexistent/config.json", NULL, &error), PLAIT_FAILED);
  model_config_free(&c);
  folder_remove(folder, &error);
  free(path);
}

static void test_counts(void **state) {
  static const struct { const char *file; int64_t parameters, multiplied; } table[] = {
      {"gpt-small", 124439808, 124439808 - 1024 * 768}, // GPT-2
      {"llama-small", 134515008, 134515008},            // SmolLM-135M
      {"gpt-demo", 2025600, 2025600 - 256 * 192}, // these by transformers
      {"llama-demo", 1771200, 1771200},
      {"gpt-tiny", 43904, 43904 - 64 * 32},
      {"llama-tiny", 33440, 33440},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    char *path = xformat("%s/models/%s.json", SOURCE_FOLDER, table[i].file);
    ModelConfig c;
    Error error = {0};
    if (model_config_load(&c, path, &error)) fail_msg("%s", error.message);
    if (model_config_parameters(&c) != table[i].parameters)
      fail_msg("%s: %lld", path, (long long)model_config_parameters(&c));
    assert_int_equal(c.facts.multiplied, table[i].multiplied);
    double n = (double)table[i].multiplied;
    assert_true(model_config_flops_per_token(&c, 100) == 6 * n + 606.0 * (double)(c.layers * c.embed));
    model_config_free(&c);
    free(path);
  }
  ModelConfig c = parse("{" LLAMA ", \"head_dim\": 4}"); // an untied table is looked up, not multiplied
  double n = (double)model_config_parameters(&c) - 97 * 32;
  assert_true(model_config_flops_per_token(&c, 10) == 6 * n + 6.0 * 2 * 16 * 11);
  model_config_free(&c);
}

// Keys that are not read are named, with what was probably meant; not those that every config.json holds.
static void test_unread(void **state) {
  static const struct { const char *text, *unread;
  } table[] = {
      {"{" GPT2 "}", NULL},
      {"{" GPT2
       ", \"transformers_version\": \"5.0\", \"dtype\": \"float32\", \"architectures\": [\"X\"], \"use_cache\": true,"
       "\"bos_token_id\": 1, \"n_ctx\": 64, \"summary_type\": \"cls_index\", \"task_specific_params\": "
       "{\"text-generation\":"
       "{\"max_length\": 50}}, \"_name_or_path\": \"gpt2\", \"attn_pdrop\": 0.1, \"id2label\": {\"0\": \"A\"}}",
       NULL},
      {"{" GPT2 ", \"atn_pdrop\": 0.5}", "atn_pdrop (did you mean attn_pdrop?)"},
      {"{" GPT2 ", \"hidden_size\": 32, \"nothing\": null}", NULL}, // another name of n_embd
      {"{" GPT2 ", \"ffn_size\": 64}", "ffn_size"},
      {"{" LLAMA ", \"sliding_window\": null, \"rms_norm_esp\": 1e-5, \"logit_softcapping\": 30.0}",
       "rms_norm_esp (did you mean rms_norm_eps?), logit_softcapping"},
      {"{" LLAMA
       ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0, \"orignal\": 1, \"rope_teta\": 5.0}}",
       "rope_scaling.orignal, rope_scaling.rope_teta (did you mean rope_scaling.rope_theta?)"},
      {"{" LLAMA ", \"vision_config\": {\"layers\": 3}}", "vision_config"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    ModelConfig c = parse(table[i].text);
    char *unread = model_config_unread(&c);
    if (!unread != !table[i].unread || (unread && strcmp(unread, table[i].unread)))
      fail_msg("%s: %s, not %s", table[i].text, unread, table[i].unread);
    free(unread);
    model_config_free(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2),     cmocka_unit_test(test_llama),    cmocka_unit_test(test_spellings),
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_defaults), cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_experts),  cmocka_unit_test(test_hostile),  cmocka_unit_test(test_write),
      cmocka_unit_test(test_counts),   cmocka_unit_test(test_unread),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
