"""torchrun with DDP: seconds from a worker's death to the end of the next step. bench/elastic calls it where PyTorch is.

A model of the size of models/demo.json, two processes over gloo, a checkpoint every 20 steps, from which a restarted worker continues.
"""
import argparse, os, signal, statistics, subprocess, sys, tempfile, time


def train(folder):
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.set_num_threads(1)
    layer = nn.TransformerEncoderLayer(192, 3, 768, dropout=0.0, batch_first=True, norm_first=True)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(1024, 192), nn.TransformerEncoder(layer, 4), nn.Linear(192, 1024)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    saved, step = os.path.join(folder, "saved.pt"), 0
    if os.path.exists(saved):
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    while True:
        tokens = torch.randint(1024, (4, 128))
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank:
            continue
        if step % 20 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, saved + ".new")
            os.replace(saved + ".new", saved)
        with open(os.path.join(folder, "steps"), "a") as out:
            out.write(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {step}\n")


def steps(folder, restarts):
    try:
        return [int(line.split()[1]) for line in open(os.path.join(folder, "steps")) if line.startswith(f"{restarts} ")]
    except OSError:
        return []


def wait_for(what, name):
    end = time.monotonic() + 120
    while not what():
        if time.monotonic() > end:
            sys.exit(f"bench/torch_elastic.py: torchrun: {name} has not come within 120 s")
        time.sleep(0.002)


def rank_1(parent):
    """The worker of torchrun that is rank 1."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_child = int(open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[1]) == parent
            if is_child and b"RANK=1" in open(f"/proc/{name}/environ", "rb").read().split(b"\0"):
                return int(name)
        except OSError:
            continue
    sys.exit("bench/torch_elastic.py: torchrun has no rank 1")


def measure():
    with tempfile.TemporaryDirectory() as folder:
        # Workers that share torchrun's own store hang in init_process_group after a restart, three times of five with PyTorch 2.15.
        env = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        job = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                "--max-restarts", "1", os.path.abspath(__file__), "--train", folder],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        try:
            wait_for(lambda: len(steps(folder, 0)) >= 30, "step 30")
            since = time.monotonic()
            os.kill(rank_1(job.pid), signal.SIGKILL)
            wait_for(lambda: steps(folder, 1), "a step after the restart")
            return time.monotonic() - since
        finally:
            job.terminate()
            job.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--train", metavar="FOLDER", help="what each worker does")
    args = parser.parse_args()
    if args.train:
        return train(args.train)
    seconds = [measure() for _ in range(args.repeat)]
    print(f"{'torchrun with DDP: worker killed -> next step':50}{statistics.median(seconds):8.2f} s{max(seconds):10.2f} s   "
          "plait's is to be 5 times sooner")


if __name__ == "__main__":
    main()
