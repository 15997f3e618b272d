"""A task of lm-evaluation-harness measured by it and by plain requests: eval_client.py PORT FOLDER WORK. WORK gets the task."""
import glob
import json
import os
import random
import subprocess
import sys

from client import Server, check, finish

port, folder, work = sys.argv[1:]
s = Server(port)
words = "ba do ki lu me no pa ra si tu".split()
random.seed(1)
items = [{"q": " ".join(random.choices(words, k=4)), "c": [" " + w for w in random.sample(words, 3)], "a": i % 3} for i in range(30)]
os.makedirs(os.path.join(work, "task"), exist_ok=True)
with open(os.path.join(work, "items.jsonl"), "w") as f:
    f.writelines(json.dumps(i) + "\n" for i in items)
with open(os.path.join(work, "task", "tiny.yaml"), "w") as f:
    f.write("""task: plait_tiny
dataset_path: json
dataset_kwargs: {data_files: %s/items.jsonl}
test_split: train
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{c}}"
doc_to_target: "{{a}}"
metric_list: [{metric: acc}]
""" % work)
done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "lm_eval"), "--model", "local-completions", "--model_args",
                       "base_url=http://127.0.0.1:%s/v1/completions,model=hf,tokenizer_backend=huggingface,tokenizer=%s,num_concurrent=4,"
                       "max_length=64" % (port, folder), "--tasks", "plait_tiny", "--include_path", os.path.join(work, "task"),
                       "--batch_size", "4", "--log_samples", "--output_path", os.path.join(work, "out")], capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
logs = glob.glob(os.path.join(work, "out", "*", "samples_*.jsonl"))
if not check(len(logs) == 1, "lm_eval: %s %s" % (done.stdout[-500:], done.stderr[-1500:])):
    finish()


def score(question, choice):
    c = s.ask(prompt=question + choice, max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]
    begin = len(s.post("/tokenize", {"prompt": question})[1]["tokens"])
    return sum(c["token_logprobs"][begin:])


compared = 0
for sample in map(json.loads, open(logs[0])):
    for asked, answer in zip(sample["arguments"].values(), sample["filtered_resps"]):
        plain = score(asked["arg_0"], asked["arg_1"])
        check(abs(plain - float(answer[0])) < 1e-6, "%s: lm_eval has %s, a plain request %s" % (asked, answer, plain))
        compared += 1
check(compared == 3 * len(items), "%d scores" % compared)
finish()
