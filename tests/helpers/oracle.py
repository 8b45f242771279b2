"""The published rule, restated from the peers' description and written to be read, not to be fast.

It imports nothing of evs_cli, so a fault there cannot hide here. SGLang, vLLM and transformers' nemotron_h_omni
share the rule: dissimilarity ``1 - cosine_similarity`` over the whole tensor, 255 for frame 0, a stable
descending sort, the first K kept, K in Python floats.
"""

import torch
import torch.nn.functional as F

FLOAT16_MIN_NORM, FLOAT16_MAX_NORM = 1e-3, 6e4  # law 1 of the design holds in float16 inside these


def retained_tokens(tokens_per_frame, num_frames, q):
    return max(tokens_per_frame, int(num_frames * tokens_per_frame * (1 - q)))


def dissimilarity(embeds):
    """``(T, h, w)`` of ``embeds (T, h, w, D)``, made contiguous first: the rule is stated on the plain layout."""
    embeds = embeds.detach().contiguous()
    similarity = F.cosine_similarity(embeds[1:], embeds[:-1], dim=-1)
    first = torch.full(embeds.shape[:3], 255.0, dtype=embeds.dtype)[:1]
    return torch.cat([first, 1 - similarity])


def order(scores):
    """Flat indices of ``scores (T, h, w)``, the first to keep first."""
    return torch.argsort(scores.flatten(), dim=-1, descending=True, stable=True)


def mask_of(scores, q):
    num_frames, height, width = scores.shape
    mask = torch.zeros(scores.numel(), dtype=torch.bool)
    mask[order(scores)[: retained_tokens(height * width, num_frames, q)]] = True
    return mask.view(scores.shape)


def rebuild(ids, token_positions, extra_positions, num_frames, mask):
    """Walk the unpruned sequence one id at a time, leaving out the tokens that are not kept.

    Returns ids, kept positions, (start, end) of each frame and the extra rows' new positions, all Python lists.
    """
    token_at = {position: token for token, position in enumerate(token_positions)}
    per_frame = len(token_positions) // num_frames
    new_ids, kept, new_extras = [], [], []
    starts, counts = [-1] * num_frames, [0] * num_frames
    for position, token_id in enumerate(ids):
        if position in token_at:
            token = token_at[position]
            frame = token // per_frame
            if token % per_frame == 0:
                starts[frame] = len(new_ids)
            if not mask[token]:
                continue
            counts[frame] += 1
        if position in extra_positions:
            new_extras.append(len(new_ids))
        new_ids.append(token_id)
        kept.append(position)
    spans = [[start, start + count - 1] for start, count in zip(starts, counts, strict=True)]
    return new_ids, kept, spans, new_extras


def draw_embeddings(num_frames, height, width, dim, dtype, *, seed, kind="drawn"):
    """``(T, h, w, D)`` embeddings with norms over the whole allowed range and, by kind, many ties.

    Kinds: ``drawn`` (all frames new), ``constant`` (one frame repeated: every later score is rounding noise),
    ``still`` (each frame repeats the one before at about half of its places), ``coarse`` (entries -1, 0, 1, no row
    zero: few distinct scores).
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (num_frames, height, width, dim)
    if kind == "coarse":
        rows = torch.randint(-1, 2, shape, generator=generator).double()
        rows[..., 0] = 1
        return rows.to(dtype)
    rows = torch.randn(shape, generator=generator, dtype=torch.float64)
    rows /= rows.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    # Norms from 2e-3 to 5e4, evenly in their logarithm: a factor inside the limits leaves room for rounding.
    low, high = torch.tensor([2 * FLOAT16_MIN_NORM, FLOAT16_MAX_NORM / 1.2], dtype=torch.float64).log()
    rows *= (low + (high - low) * torch.rand(shape[:3], generator=generator, dtype=torch.float64)).exp()[..., None]
    if kind == "constant":
        rows = rows[:1].expand(shape).clone()
    elif kind == "still":
        for frame in range(1, num_frames):
            same = torch.rand(height, width, generator=generator) < 0.5
            rows[frame][same] = rows[frame - 1][same]
    return rows.to(dtype)


def cut(length, *, seed):
    """A random cut of ``length`` frames into chunks: sizes of at least 1 that sum to it."""
    generator = torch.Generator().manual_seed(seed)
    sizes = []
    while sum(sizes) < length:
        sizes.append(int(torch.randint(1, length - sum(sizes) + 1, (1,), generator=generator)))
    return sizes
