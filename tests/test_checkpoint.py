"""The resumable state: damage is found, and its key tells runs apart."""

import torch

from resablate import checkpoint, paths, runs
from toys import CPU, toy_run, toy_trainer


def test_a_damaged_state_is_set_aside_and_named(tmp_path, capsys):
    trainer = toy_trainer(tmp_path)
    path = tmp_path / "x.state"
    checkpoint.write_state(path, trainer.state())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert checkpoint.read_state(path) is None
    assert "x.state is damaged" in capsys.readouterr().out
    assert (tmp_path / "x.damaged").exists()
    path.write_bytes(bytes(content)[:10])
    assert checkpoint.read_state(path) is None


def test_the_key_of_a_state_changes_with_all_that_decides_the_run():
    keys = {
        checkpoint.run_key(toy_run(), 1, {"a": "x"}, CPU),
        checkpoint.run_key(toy_run(), 2, {"a": "x"}, CPU),
        checkpoint.run_key(toy_run(), 1, {"a": "y"}, CPU),
        checkpoint.run_key(toy_run(lr=2e-3), 1, {"a": "x"}, CPU),
    }
    assert len(keys) == 4


def test_a_state_is_resumed_only_where_the_machine_gives_its_bits(tmp_path, monkeypatch, capsys):
    def on_machine_with(capability):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        runs_here = (toy_run(), toy_run(numerics="portable"))
        return [checkpoint.run_key(run, 3, trainer.tokens.sha256, CPU) for run in runs_here]

    monkeypatch.chdir(tmp_path)
    trainer = toy_trainer(tmp_path)
    native, portable = on_machine_with("AVX2")
    checkpoint.write_state(checkpoint.state_path(native), trainer.state())
    for capability, resumes in (("AVX512", False), ("AVX2", True)):
        assert on_machine_with(capability)[1] == portable
        runs.execute("toy", trainer.run, 3, trainer.tokens, paths.trial())
        assert ("toy: resumed at step 0 of 12" in capsys.readouterr().out) == resumes
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert {native, portable}.isdisjoint(on_machine_with("AVX2"))
