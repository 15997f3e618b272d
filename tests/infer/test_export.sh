#!/bin/bash
# tier 2; rooms model checkpoint data
# plait export makes a folder that generation needs nothing else for: the small files of the folder that a model or a tokenizer came from
# are carried through a run's checkpoints, or written; plait generate begins and stops as they say. An export is whole or absent.
. "$SOURCE/tests/train/harness.sh" || exit 1
golden=$SOURCE/tests/model/golden

# value FILE KEY: of a JSON file, as compact JSON
value() { python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1])).get(sys.argv[2]), separators=(",", ":")))' "$1" "$2"; }
is() { # FILE KEY VALUE
  [ "$(value "$1" "$2")" = "$3" ] || fail "$1: $2 is $(value "$1" "$2"), not $3"
}
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3 here"; exit 77; }

# Documents of a sentence, so that a model learns in seconds where they end
awk '{ n = split($0, sentence, /[.?]/); for (i = 1; i < n; i++) printf "{\"text\": \"%s.\"}\n", substr(sentence[i], 1, 30) }' text-*.txt >short.jsonl
"$PLAIT" tokenize --tokenizer tokenizer.json --out short short.jsonl >log 2>&1 || { cat log; die "no corpus"; }
sed -i 's/pdrop": 0.1/pdrop": 0.0/; s/"model_type"/"eos_token_id": 50256, "model_type"/' model.json # as a copy of GPT-2's config has it
sed -i 's/warmup: 5/warmup: 0/' recipe.yaml
train=(schedule.steps=200 schedule.warmup=5 optimizer.lr=1e-2 checkpoint.every=0 eval.every=0 data.train=short data.valid=short)
"$PLAIT" train recipe.yaml run.dir=run "${train[@]}" >log 2>&1 || { cat log; die "no run"; }

# ---- a model trained here: eos and bos are those of its corpus ----
expect 0 'a text ends at <\|endoftext\|> \(token 0\)' "$PLAIT" export run --out made
for file in made/config.json made/generation_config.json; do
  is $file eos_token_id 0
  is $file bos_token_id 0
done
is made/tokenizer_config.json eos_token '"<|endoftext|>"'
is made/tokenizer_config.json tokenizer_class '"PreTrainedTokenizerFast"'
is made/tokenizer_config.json model_max_length 64
for model in run made; do
  timeout "$limit" "$PLAIT" generate $model --prompt 'ba' --temperature 0 --max-tokens 60 infer.context=32 --verbose >text 2>log || fail "generate from $model"
  grep -qE '^[0-9]+ tokens in .* tokens/s, then the end of the text$' log || fail "generate from $model does not end: $(cat text log)"
  grep -q endoftext text && fail "the end of text is printed: $(cat text)"
  timeout "$limit" "$PLAIT" generate $model --prompt 'ba' --temperature 0 --max-tokens 60 infer.context=32 --verbose --ignore-eos >longer 2>log
  grep -qE '^60 tokens in .* tokens/s$' log || fail "--ignore-eos from $model: $(cat log)"
  grep -qE '^prefill: 30 tokens of prompts at [0-9.]+ tokens/s; decode: 58 tokens at [0-9.]+ tokens/s$' log || fail "rates: $(cat log)"
  grep -qE '^rank 0: [0-9.]+ [kM]B read of files, [0-9.]+ MB held, [0-9.]+ kB of these for the cache$' log || fail "bytes: $(cat log)"
  grep -q endoftext longer || fail "--ignore-eos from $model: $(cat longer)"
done
[ "$("$PLAIT" generate run --prompt 'ba' --temperature 0 2>&1)" = "$(cat text)" ] || fail "without --verbose something else is printed"
# another separator than the tokenizer's own, as plait tokenize --eot has it
python3 - <<'PYTHON' || die "no second token"
import json
t = json.load(open("tokenizer.json"))
t["added_tokens"].append(dict(t["added_tokens"][0], id=300, content="<|stop|>"))
json.dump(t, open("two.json", "w"))
PYTHON
"$PLAIT" tokenize --tokenizer two.json --eot '<|stop|>' --out stop short.jsonl >log 2>&1 || fail "--eot: $(cat log)"
sed 's/"vocab_size": 300/"vocab_size": 301/' model.json >model301.json
"$PLAIT" train recipe.yaml run.dir=stops model.config=model301.json data.tokenizer=two.json data.train=stop data.valid=stop schedule.steps=1 checkpoint.every=0 eval.every=0 >log 2>&1 ||
  fail "$(cat log)"
expect 0 'a text ends at <\|stop\|> \(token 300\)' "$PLAIT" export stops --out stopped
is stopped/generation_config.json eos_token_id 300
# the run has a copy of its tokenizer: the original may be lost, or be another one by now
mv two.json lost.json
expect 0 'a text ends at <\|stop\|>' "$PLAIT" export stops --out stopped2
cmp lost.json stopped2/tokenizer.json || fail "not the tokenizer of the run"
# begin and end, as tokenize has recorded them, and a tokenizer that says otherwise: notes, and generate does as the data
expect 0 "^note: data.train: the documents of .*/stop are … <\|stop\|>, by .*stop.documents.json, and .*lost.json says … <\|endoftext\|>, from its usual name" \
  "$PLAIT" train recipe.yaml run.dir=noted model.config=model301.json data.tokenizer=lost.json data.train=stop data.valid=stop schedule.steps=1 checkpoint.every=0 eval.every=0
expect 0 'note: the documents that .* was trained on are … <\|stop\|>, and its tokenizer.s files say … <\|endoftext\|>' "$PLAIT" export noted --out noted-out
expect 0 'note: the documents of valid are … <\|endoftext\|>, and those of .*noted.* are … <\|stop\|>' "$PLAIT" eval noted --data valid
expect 0 'loss' "$PLAIT" eval noted --data stop
grep -q note: output && fail "a note though data and model agree: $(cat output)"
"$PLAIT" tokenize --tokenizer tokenizer.json --bos '<|endoftext|>' --out begun short.jsonl >log 2>&1 || fail "--bos: $(cat log)"
"$PLAIT" train recipe.yaml run.dir=begins data.train=begun data.valid=short schedule.steps=1 checkpoint.every=0 eval.every=0 >log 2>&1 || fail "$(cat log)"
grep -q '^note: data.valid: the documents of .*/short are … <|endoftext|>, and those of .*/begun (data.train) are <|endoftext|> … <|endoftext|>' log || fail "$(cat log)"
expect 0 'verified' "$PLAIT" export begins --out begun-out
is begun-out/tokenizer_config.json add_bos_token true
sum_of() { "$PLAIT" generate "$1" --prompt 'ba do' --temperature 0 --max-tokens 8 --ignore-eos infer.context=32 2>&1; }
[ "$(sum_of begins)" = "$(sum_of begun-out)" ] || fail "an export puts other tokens before a prompt than its run"
sed -i 's/true/false/' begun-out/tokenizer_config.json
[ "$(sum_of begins)" != "$(sum_of begun-out)" ] || fail "BOS changes nothing, so nothing is tested"
# documents that all end alike, but with no special token
"$PLAIT" tokenize --tokenizer tokenizer.json --eot none --out none short.jsonl >log 2>&1
"$PLAIT" train recipe.yaml run.dir=nowhere data.train=none data.valid=none schedule.steps=1 checkpoint.every=0 eval.every=0 >log 2>&1 || fail "$(cat log)"
expect 0 'a text ends at <\|endoftext\|>' "$PLAIT" export nowhere --out nowhere-out

# ---- a model that came from a Hugging Face folder: its files are carried, through training and a resume ----
cp -r made hub
printf '{"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": true, "bos_token": {"content": "<|endoftext|>"}, "eos_token": "<|endoftext|>", "odd": "é"}' >hub/tokenizer_config.json
printf '{"bos_token": "<|endoftext|>"}\n' >hub/special_tokens_map.json
printf '{%% for m in messages %%}{{ m.content }}\n{%% endfor %%}' >hub/chat_template.jinja
printf '{"eos_token_id": [0, 7], "temperature": 0.6, "do_sample": true}' >hub/generation_config.json
small='tokenizer_config.json special_tokens_map.json chat_template.jinja generation_config.json'
carried() { # FOLDER [FROM]
  local file
  for file in $small; do cmp "${2-hub}/$file" "$1/$file" || fail "$1/$file is not carried"; done
}
expect 0 'verified' "$PLAIT" export hub --out hub2
carried hub2
cmp hub/config.json hub2/config.json || fail "config.json is changed"
tune=(run.dir=tuned model.config=hub/config.json model.init=hub data.tokenizer=hub/tokenizer.json data.train=short data.valid=short checkpoint.every=0 eval.every=0)
"$PLAIT" train recipe.yaml "${tune[@]}" schedule.steps=2 >log 2>&1 || { cat log; fail "no fine-tuning"; }
expect 0 'verified' "$PLAIT" export tuned --out tuned1
carried tuned1
mv hub away # what is in the run is enough
expect 0 'verified' "$PLAIT" export tuned/checkpoints/step-2 --out tuned2
carried tuned2 away
cp -r tuned/checkpoints/step-2 alone # and a checkpoint alone, but for the tokenizer
expect 0 'verified' "$PLAIT" export alone --tokenizer tuned/tokenizer.json --out tuned3
carried tuned3 away
mv away hub
# a model's own end of text stays, and the one that it has learnt here is added
printf '{"eos_token_id": 7}' >hub/generation_config.json
"$PLAIT" train recipe.yaml "${tune[@]}" run.dir=again schedule.steps=1 >log 2>&1 || fail "$(cat log)"
expect 0 'verified' "$PLAIT" export again --out again1
is again1/generation_config.json eos_token_id '[7,0]'
# a folder whose config.json says it all stays as it is
rm hub/generation_config.json
expect 0 'verified' "$PLAIT" export hub --out hub3
[ ! -e hub3/generation_config.json ] || fail "a generation_config.json is made up: $(cat hub3/generation_config.json)"
# with another tokenizer what the folder says about tokens is not carried
printf '{"eos_token_id": 9}' >hub/generation_config.json
sed 's/"trim_offsets": true/"trim_offsets": false/' tokenizer.json >other.json
cmp -s other.json tokenizer.json && fail "not another tokenizer"
"$PLAIT" train recipe.yaml "${tune[@]}" run.dir=other data.tokenizer=other.json schedule.steps=1 >log 2>&1 || fail "$(cat log)"
expect 0 'verified' "$PLAIT" export other --out other1
is other1/config.json eos_token_id 0
[ ! -e other1/generation_config.json ] || fail "a generation_config.json of another tokenizer is carried"
[ ! -e other1/chat_template.jinja ] || fail "a chat template of another tokenizer is carried"

# ---- generate adds BOS where tokenizer_config.json or the post-processor says so ----
tokens() { "$PLAIT" generate "$1" --prompt 'ba do' --temperature 0 --max-tokens 8 --ignore-eos infer.context=32; }
cp -r made plain && cp -r made bos && cp -r made template && cp -r made off
printf '{"add_bos_token": true, "bos_token": "<|endoftext|>"}' >bos/tokenizer_config.json
python3 - <<'PYTHON' || die "no template"
import json
t = json.load(open("made/tokenizer.json"))
t["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [], "special_tokens": {"B": {"id": "B", "ids": [0], "tokens": ["<|endoftext|>"]}}}
for folder in "template", "off":
    json.dump(t, open(folder + "/tokenizer.json", "w"))
PYTHON
printf '{"add_bos_token": false, "bos_token": "<|endoftext|>"}' >off/tokenizer_config.json
rm template/tokenizer_config.json
[ "$(tokens bos)" = "$(tokens template)" ] || fail "add_bos_token is not what a template does"
[ "$(tokens plain)" = "$(tokens off)" ] || fail "add_bos_token: false does not switch the template off"
[ "$(tokens plain)" != "$(tokens bos)" ] || fail "BOS changes nothing, so nothing is tested"
# What Python writes and jansson does not read is not taken for an absent file, and neither is what nobody reads.
for odd in '"model_max_length": 1000000000000000019884624838656' '"scale": NaN' '"scale": 1e999' '"bos_token": "<|endoftext|>"'; do
  printf '{"add_bos_token": false, "bos_token": "<|endoftext|>", %s}' "$odd" >off/tokenizer_config.json
  [ "$(tokens plain)" = "$(tokens off)" ] || fail "with $odd tokenizer_config.json is not read"
done
printf '\xef\xbb\xbf{"add_bos_token": false, "bos_token": "<|endoftext|>"}' >off/tokenizer_config.json
[ "$(tokens plain)" = "$(tokens off)" ] || fail 'after a BOM tokenizer_config.json is not read'
for bad in '{"add_bos_token": false' '[1]' '\xff'; do
  printf '%b' "$bad" >off/tokenizer_config.json
  expect 2 'off: .*tokenizer_config.json: (line 1: not valid JSON|not a JSON object|not UTF-8)' "$PLAIT" generate off --prompt 'ba do' --max-tokens 1
  expect 2 'off: .*tokenizer_config.json: ' "$PLAIT" export off --out broken
done
[ ! -e broken ] || fail 'a folder is left of an export that failed'

# ---- a prompt that the vocabulary lacks some of ----
cp -r made lacks
python3 - <<'PYTHON' || die "no tokenizer that lacks a byte"
import json
t = json.load(open("lacks/tokenizer.json"))
del t["model"]["vocab"]["\u00fe"] # byte 254
json.dump(t, open("lacks/tokenizer.json", "w"))
PYTHON
expect 0 "^plait generate: warning: the tokenizer's vocabulary lacks 2 bytes of the prompt$" "$PLAIT" generate lacks --prompt $'ba\376\376' --max-tokens 2 infer.context=32
expect 0 . "$PLAIT" generate lacks --prompt ba --max-tokens 2 infer.context=32
grep -q lacks output && fail "a warning without reason"

# ---- shards ----
expect 0 '3 files model-….safetensors and an index' "$PLAIT" export run --out shards --shard-size 60kB
[ -e shards/model.safetensors.index.json ] && [ ! -e shards/model.safetensors ] || fail "no shards: $(ls shards)"
expect 0 'verified' "$PLAIT" export shards --out joined
cmp made/model.safetensors joined/model.safetensors || fail "shards are other weights"
refuse 2 '--shard-size is "5XB", it must be a number of bytes such as 5GB' "$PLAIT" export run --out x --shard-size 5XB

# ---- what is there already ----
refuse 2 'made exists already; give a folder that does not, or --force' "$PLAIT" export run --out made
sum() { cat "$1"/* | cksum; }
before=$(sum joined)
expect 0 'verified' "$PLAIT" export run --out joined --dtype bf16 --force
[ "$(sum joined)" != "$before" ] || fail "--force replaces nothing"
mkdir mine && touch mine/letter
refuse 2 'mine: exists and has no config.json, so it is not an exported model' "$PLAIT" export run --out mine --force
[ -e mine/letter ] || fail "--force has removed a folder that is not a model"
# a clone of a repository of the Hub: all that no export writes is named, and stays
cp -r joined clone
mkdir clone/.git clone/tokenizer.json.d && touch clone/.git/HEAD clone/README.md clone/train.py clone/model-1-of-2.safetensors.bak
before=$(cd clone && find . | sort | cksum)
refuse 2 'clone: also holds .git, README.md, model-1-of-2.safetensors.bak and 2 more, which no export writes and which would be lost; move them elsewhere' \
  "$PLAIT" export run --out clone --force
[ "$(cd clone && find . | sort | cksum)" = "$before" ] || fail "a refused --force changes the folder: $(ls -A clone)"
rm -r clone/.git clone/tokenizer.json.d clone/README.md clone/train.py clone/model-1-of-2.safetensors.bak
touch clone/{generation_config,special_tokens_map,chat_template,tokenizer_config}.json clone/chat_template.jinja clone/model-0000{1,2}-of-00002.safetensors clone/model.safetensors.index.json
expect 0 'verified' "$PLAIT" export run --out clone --force # all of these an export could have written
[ "$(cd clone && ls)" = "$(cd made && ls)" ] || fail "not an export of its own: $(ls clone)"
# a symbolic link stays one; what it points to is replaced
ln -s joined link && ln -s nothing astray && mkdir bare && ln -s bare empty
before=$(sum joined)
expect 0 'verified' "$PLAIT" export run --out link/ --force
[ -L link ] && [ "$(sum joined)" != "$before" ] || fail "--force on a link: $(ls -l)"
[ "$(sum joined)" = "$(sum made)" ] || fail "not replaced through a link"
expect 0 'verified' "$PLAIT" export run --out empty --force
[ -L empty ] && [ -e bare/model.safetensors ] || fail "a link to an empty folder: $(ls -l)"
refuse 2 'astray: is a symbolic link that leads nowhere' "$PLAIT" export run --out astray
cd bare || die "no folder bare"
refuse 2 'export: .: is the current folder, which cannot be replaced; start from another folder' "$PLAIT" export ../run --out . --force
cd .. || die "no folder above"
compgen -G '*.tmp.*' && fail "temporary folders are left"

# ---- stopped: 128 + signal, and the folder is gone or whole ----
# A model of some 100 MB, so that writing it takes a while
sed 's/"n_embd": 32/"n_embd": 512/; s/"n_layer": 2/"n_layer": 8/' model.json >large.json
"$PLAIT" train recipe.yaml model.config=large.json run.dir=large mesh.dp=1 parallel.zero=0 batch.global=1 batch.micro=1 schedule.steps=1 schedule.warmup=0 checkpoint.every=0 eval.every=0 \
  optimizer.name=sgd >log 2>&1 || { cat log; die "no large model"; }
begun() { compgen -G "stopped-$signal.tmp.*/*" || [ -e "stopped-$signal" ]; } # it may be done before this shell looks
for signal in INT TERM; do
  env --default-signal=INT,TERM "$PLAIT" export large --out stopped-$signal >log 2>&1 &
  running=$!
  wait_for begun || fail "export writes nothing: $(cat log)"
  kill -s $signal "$running" 2>/dev/null
  wait "$running"
  status=$?
  running=
  if [ $status -eq 0 ]; then expect 0 verified "$PLAIT" export stopped-$signal --out "again-$signal" # it was done before
  elif [ $status -eq $((128 + $(kill -l $signal))) ]; then
    grep -q "stopped by SIG$signal" log || fail "export after SIG$signal: $(cat log)"
    compgen -G "stopped-$signal*" && fail "files are left after SIG$signal"
  else fail "status $status after SIG$signal: $(cat log)"; fi
done
finish
