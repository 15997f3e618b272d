# What tests of plait explain plan: a llama of 8 layers and its recipe. Sourced by bash.
. "$SOURCE/tests/script.sh" || exit 1

cat > config.json <<'J'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4,
 "head_dim": 8, "max_position_embeddings": 64, "vocab_size": 40, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false}
J
cat > recipe.yaml <<'Y'
model: {config: config.json}
data: {train: corpus, seq_len: 32}
batch: {global: 48, micro: 1}
run: {dir: run}
Y
