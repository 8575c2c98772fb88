"""Tests of parsing published file names, and of choosing a repository's models.

Names and sizes are those of repositories of unsloth, ggml-org, bartowski, mradermacher, LibertAI
and huihui-ai, as issues and model cards of 2026 list them.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from localspec.catalog import filenames, header, writer
from localspec.catalog.filenames import ADAPTER, HEAD, MATRIX, PROJECTOR, UNREADABLE, VOCABULARY
from localspec.catalog.variants import TARGET_ORDER, File, choose, sort, variants
from localspec.errors import BadGGUF, PullError

GB, MB = 10**9, 10**6
LABELS = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L"),
    *("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"),
    *("IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS", "TQ1_0"),
    *("TQ2_0", "BF16", "F16", "F32", "MXFP4", "MXFP4_MOE", "NVFP4", "Q1_0", "Q2_0"),
    *("Q2_K_L", "Q3_K_XL", "Q4_K_L", "Q5_K_L", "Q6_K_L", "Q4_K_XL"),  # bartowski's
    *("UD-Q2_K_XL", "UD-Q3_K_XL", "UD-Q4_K_XL", "UD-Q5_K_XL", "UD-Q6_K_XL", "UD-Q8_K_XL"),
    *("UD-IQ1_S", "UD-IQ1_M", "UD-IQ2_XXS", "UD-IQ2_M", "UD-IQ3_XXS", "UD-IQ3_S", "UD-TQ1_0"),
)


@pytest.mark.parametrize("label", LABELS)
def test_every_quantization_in_use_is_read_wherever_it_stands(label: str) -> None:
    """Labels are found after hyphens and dots, in lower case, in folders and in parts."""
    for name in (
        f"Qwen3.6-27B-{label}.gguf",
        f"Qwen3.6-27B.{label}.gguf",
        f"Qwen3.6-27B.i1-{label}.gguf",
        f"qwen3.6_27b_{label.lower()}.gguf",
        f"{label}/Qwen3.6-27B-{label}-00001-of-00003.gguf",
        f"{label}/model-00001-of-00003.gguf",
        f"Qwen3.6-27B-00002-of-00003-{label}.gguf",
        f"Qwen3.6-27B-{label}-imat.gguf",
        f"Qwen3.6-27B-{label}_imat.gguf",
        f"Qwen3.6-27B-{label}-mtp.gguf",
        f"Qwen3.6-27B-{label}.gguf.part1of2",
    ):
        read = filenames.read(name)
        assert read is not None, name
        assert (read.label, read.other) == (label, ""), name
    assert label in TARGET_ORDER or label == "F32"
    assert choose(
        variants([File(f"m-{label}.gguf", GB), File("m-IQ9_X.gguf", GB)]), label.lower(), GB
    )


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Llama-3.2-1B-fp16.gguf", "F16"),
        ("model-FP32.gguf", "F32"),
        ("Qwen3-8B.gguf", ""),
        ("mixtral-8x7b.gguf", ""),
        ("Q-star-7B.gguf", ""),
        ("Qwen3.6-27B-NVFP4-Q4_K_M-mtp.gguf", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
    ],
)
def test_a_name_without_one_has_none(name: str, label: str) -> None:
    """Names without a label have none; half precision is spelled in two ways."""
    assert filenames.label(name) == label


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("mmproj-F16.gguf", PROJECTOR),
        ("mmproj-model-f16.gguf", PROJECTOR),
        ("Qwen2.5-VL-7B-Instruct-mmproj-bf16.gguf", PROJECTOR),
        ("moondream2-mmproj-f16.gguf", PROJECTOR),
        ("mmproj_model.Q8_0.gguf", PROJECTOR),
        ("mtp-gemma-4-E4B-it.gguf", HEAD),
        ("mtp-Qwen3.6-27B-NVFP4.gguf", HEAD),
        ("nextn-GLM-4.5-Air-Q8_0.gguf", HEAD),
        ("eagle3-gpt-oss-120b-BF16.gguf", HEAD),
        ("Qwen3-8B-EAGLE3-Q8_0.gguf", HEAD),
        ("LLaMA3.1-Instruct-8B_eagle3.gguf", HEAD),
        ("EAGLE-3-Llama-8B-F16.gguf", HEAD),
        ("qwen3-coder-30b-p-eagle-q8_0.gguf", HEAD),
        ("dflash-gemma-4-31B-it-Q8_0.gguf", HEAD),
        ("Qwen3.6-27B-DFlash-q4_k_m.gguf", HEAD),
        ("Qwen3.8-27B-DFlash2-Q8_0.gguf", HEAD),
        ("Qwen3.8-27B-MTP-ONLY-Q8_0.gguf", HEAD),
        ("dspark-DeepSeek-V4-Flash-Q8_0.gguf", HEAD),
        ("gemma-4-12B-it-assistant-Q8_0.gguf", HEAD),
        ("gemma-4-E2B-it-qat-assistant-MTP-Q8_0.gguf", HEAD),
        ("imatrix.gguf", MATRIX),
        ("Qwen3-8B-imatrix.gguf", MATRIX),
        ("imatrix_unsloth.gguf", MATRIX),
        ("lora-r16-f16.gguf", ADAPTER),
        ("Llama-3.2-1B-Instruct-adapter.gguf", ADAPTER),
        ("adapter_model-Q8_0.gguf", ADAPTER),
        ("ggml-vocab-llama-spm.gguf", VOCABULARY),
        ("DeepSeek-R1-IQ2_KS.gguf", UNREADABLE),
        ("Qwen3-235B-A22B-IQ4_KSS-00001-of-00003.gguf", UNREADABLE),
        ("Llama-3-8B-Q4_0_4_8.gguf", UNREADABLE),
        ("Meta-Llama-3.1-8B-Instruct-lorablated-Q4_K_M.gguf", ""),
        ("Explorator-7B-Q4_K_M.gguf", ""),
        ("Eagle2.5-8B-Q4_K_M.gguf", ""),
        ("rwkv-5-world-7b-eagle-Q8_0.gguf", ""),
        ("Lumimaid-8B-Q4_K_M-imatrix.gguf", ""),
        ("vocabulary-tutor-3b-Q4_0.gguf", ""),
        ("Adaptera-8B-Q5_K_M.gguf", ""),
        ("MTProto-helper-1B-Q8_0.gguf", ""),
        ("medical-assistant-8B-Q4_K_M.gguf", ""),
        ("Qwen3.6-27B-MTP-Q4_K_M.gguf", ""),
        ("DeepSeek-R1-DRAFT-0.6B-Q4_0.gguf", ""),
        ("Mistral-7B-LoRA-merged-Q4_K_M.gguf", ""),
    ],
)
def test_names_are_read_by_their_words(name: str, what: str) -> None:
    """Projectors, draft heads, adapters and tables are no models; only whole words count."""
    read = filenames.read(name)
    assert read is not None
    assert read.other == what
    found = sort([File(name, GB)])
    assert [model.name for model in found.models] == ([] if what else [read.whole])
    assert found.others == ({name: what} if what else {})


@pytest.mark.parametrize(
    ("files", "models"),
    [
        (  # unsloth/gemma-4-E2B-it-GGUF, before and after its heads were renamed
            [
                ("gemma-4-E2B-it-Q4_K_M.gguf", 3100 * MB),
                ("gemma-4-E2B-it-Q8_0.gguf", 5000 * MB),
                ("MTP/gemma-4-E2B-it-Q8_0-MTP.gguf", 97 * MB),
                ("MTP/mtp-gemma-4-E2B-it-BF16.gguf", 170 * MB),
                ("mtp-gemma-4-E2B-it.gguf", 60 * MB),
                ("mmproj-BF16.gguf", 990 * MB),
            ],
            {"gemma-4-E2B-it-Q4_K_M.gguf", "gemma-4-E2B-it-Q8_0.gguf"},
        ),
        (  # LibertAIDAI/Qwen3.6-27B-NVFP4-MTP-GGUF: "-mtp" are whole models, "mtp-" is the head
            [
                ("Qwen3.6-27B-NVFP4-Q4_K_M-mtp.gguf", 15 * GB),
                ("Qwen3.6-27B-NVFP4-BF16-mtp.gguf", 28 * GB),
                ("mtp-Qwen3.6-27B-NVFP4.gguf", 5600 * MB),
                ("mmproj-Qwen3.6-27B-F16.gguf", 889 * MB),
            ],
            {"Qwen3.6-27B-NVFP4-Q4_K_M-mtp.gguf", "Qwen3.6-27B-NVFP4-BF16-mtp.gguf"},
        ),
        (  # huihui-ai/Ornith-1.0-9B-abliterated-MTP-GGUF
            [
                ("ornith-9b-mtp-kl-BF16.gguf", 17140 * MB),
                ("ornith-9b-mtp-kl-IQ3_M.gguf", 5580 * MB),
                ("mtp-ornith-9b-mtp-kl-Q8_0.gguf", 2260 * MB),
            ],
            {"ornith-9b-mtp-kl-BF16.gguf", "ornith-9b-mtp-kl-IQ3_M.gguf"},
        ),
        (  # ggml-org/gpt-oss-120b-GGUF
            [
                ("gpt-oss-120b-mxfp4-00001-of-00002.gguf", 30 * GB),
                ("gpt-oss-120b-mxfp4-00002-of-00002.gguf", 33 * GB),
                ("eagle3-gpt-oss-120b-BF16.gguf", 1600 * MB),
                ("eagle3-gpt-oss-120b-Q8_0.gguf", 849 * MB),
            ],
            {"gpt-oss-120b-mxfp4.gguf"},
        ),
        (  # a head named as ggml's naming convention has it, and a model with its head in it
            [
                ("Model-8B-v1.0-Q8_0.gguf", 9 * GB),
                ("Model-8B-v1.0-Q8_0-MTP.gguf", 400 * MB),
                ("Model-8B-v1.0-MTP-Q4_K_M.gguf", 5 * GB),
            ],
            {"Model-8B-v1.0-Q8_0.gguf", "Model-8B-v1.0-MTP-Q4_K_M.gguf"},
        ),
        (  # two sizes in one repository: the small one with a head is no head
            [("m-32B-Q4_K_M.gguf", 20 * GB), ("m-4B-MTP-Q4_K_M.gguf", 3 * GB)],
            {"m-32B-Q4_K_M.gguf", "m-4B-MTP-Q4_K_M.gguf"},
        ),
        (  # where every model is in a folder of that name, it makes no difference
            [("MTP/m-Q4_K_M.gguf", 5 * GB), ("mmproj-F16.gguf", GB)],
            {"m-Q4_K_M.gguf"},
        ),
        (  # a draft model beside its target
            [("Qwen2.5-7B-Q4_0.gguf", 4 * GB), ("drafts/Qwen2.5-0.5B-Q4_0.gguf", 400 * MB)],
            {"Qwen2.5-7B-Q4_0.gguf"},
        ),
        (  # an adapter that carries a quantization
            [("m-8B-Q8_0.gguf", 9 * GB), ("m-8B-F16-LoRA.gguf", 90 * MB)],
            {"m-8B-Q8_0.gguf"},
        ),
    ],
)
def test_what_drafts_or_sees_is_never_taken_for_the_model(
    files: list[tuple[str, int]], models: set[str]
) -> None:
    """They are not chosen in any order of the listing, nor where only they fit."""
    for listed in (files, files[::-1]):
        found = sort(File(*each) for each in listed)
        assert {model.name for model in found.models} == models
        held = {file.path for model in found.models for file in model.files}
        assert held | found.others.keys() == {name for name, _ in files}
        assert not held & found.others.keys()
    with pytest.raises(PullError, match="fits here"):
        choose(found.models if len(found.models) > 1 else [*found.models] * 2, "", 10 * MB)


@given(st.permutations(range(1, 5)), st.integers(0, 3), st.sampled_from(range(6)))
def test_parts_are_put_together_however_they_are_named(
    order: list[int], lost: int, form: int
) -> None:
    """Parts are ordered whatever the listing's order; an incomplete set is no model."""
    names = [
        (
            f"Q8_0/m-Q8_0-{part:05}-of-00004.gguf",
            f"m-{part:05}-of-00004.Q8_0.gguf",
            f"m-Q8_0-{part:05}_of_00004.gguf",
            f"m.Q8_0.gguf.part{part}of4",
            f"m-Q8_0.gguf-split-{'abcd'[part - 1]}",
            f"m-q8_0.{part}-of-4.gguf",
        )[form]
        for part in order
    ]
    (whole,) = variants(File(name, GB) for name in names)
    assert [file.path for file in whole.files] == [names[order.index(part)] for part in range(1, 5)]
    assert whole.label == "Q8_0"
    assert choose([whole], names[2].rpartition("/")[2], 0).variant == whole
    some = variants(File(name, GB) for index, name in enumerate(names) if index != lost)
    last = form == 4 and order[lost] == 4  # letters do not say how many there are
    assert len(some) == last


def test_a_quantization_may_be_named_as_people_say_it() -> None:
    """It may lack unsloth's prefix, be bits alone, in any case, or a beginning."""
    found = variants(
        [
            *(File(f"m-{label}.gguf", GB) for label in ("Q4_0", "UD-Q4_K_XL", "Q5_K_M", "F16")),
            File("BF16/m-BF16.gguf", GB),
        ]
    )
    for wanted, label in (
        ("q4_k_xl", "UD-Q4_K_XL"),
        ("UD-Q5_K_M", "Q5_K_M"),
        ("Q4", "UD-Q4_K_XL"),
        ("q5", "Q5_K_M"),
        ("fp16", "F16"),
        ("m-bf16.gguf", "BF16"),
    ):
        assert choose(found, wanted, 0).variant.label == label


@pytest.mark.parametrize("architecture", ["clip", "eagle3", "dflash", "gemma4-assistant"])
def test_a_header_of_what_is_no_model_is_refused_by_name(tmp_path: Path, architecture: str) -> None:
    """It is refused under any file name; llama.cpp would fail or abort."""
    path = tmp_path / "model-Q4_K_M.gguf"
    path.write_bytes(
        writer.header({"general.architecture": architecture}, [writer.Tensor("w", (32,), "F32")])
        + bytes(128)
    )
    with pytest.raises(BadGGUF, match=r"It is (a|an) .*, not a model"):
        header.read(path)


def test_a_file_of_prediction_layers_alone_is_no_model(tmp_path: Path) -> None:
    """A file of prediction layers alone names its target's architecture but has no layers of it."""
    whole = tiny.build(tmp_path / "whole.gguf", layers=2)
    parsed = header.parse(whole)
    values = {key: writer.packed(v, parsed.kinds[key]) for key, v in parsed.metadata.items()}
    values["llama.nextn_predict_layers"] = writer.packed(1, gguf.GGUFValueType.UINT32)
    for first, refused in ((0, False), (1, True)):
        tensors = [
            writer.Tensor(t.name, t.shape[::-1], t.type.name)
            for t in parsed.tensors
            if not t.name.startswith("blk.") or int(t.name.split(".")[1]) >= first
        ]
        data = sum(t.num_bytes + len(writer.padding(t.num_bytes)) for t in tensors)
        path = tmp_path / f"{first}.gguf"
        path.write_bytes(writer.assemble(values, tensors) + bytes(data))
        if refused:
            with pytest.raises(BadGGUF, match=r"draft head \(MTP\)"):
                header.read(path)
        else:
            header.read(path)
