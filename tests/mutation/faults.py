"""Faults of the product that its tests must find. run.py puts them in one at a time.

Each is small and of a kind that happens. `text` is exactly once in `file`; `replacement` compiles. `tests` names the
test binary that must find it, where that is not the one of the library.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    library: str
    file: str
    why: str  # what is wrong, and what it would do
    text: str
    replacement: str
    tests: str = ""

    @property
    def binary(self):
        return self.tests or self.library


FAULTS = [
    # ---------------------------------------------------------------------------------------------- core
    Fault(
        "hash_of_file_reads_the_first_piece_again", "core", "core/hash.cpp",
        "each piece is read from the beginning: a file of several MiB may change without another hash",
        "    file.read(bytes, at);\n    hasher.add(bytes);",
        "    file.read(bytes, 0);\n    hasher.add(bytes);"),
    Fault(
        "thread_pool_keeps_an_error", "core", "core/thread_pool.cpp",
        "an error stays after it was thrown: each later round fails too",
        "if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));",
        "if (s.error) std::rethrow_exception(s.error);"),
    Fault(
        "range_writer_commits_without_fsync", "core", "core/file.cpp",
        "a loss of power after a checkpoint's rename leaves files without their bytes",
        "  if (fsync(descriptor_) != 0) fail_io(shown_, \"cannot sync\", errno);\n  // EINTR",
        "  // EINTR",
        tests="durability"),
    # ---------------------------------------------------------------------------------------------- kernels
    Fault(
        "adamw_corrects_v_by_beta1", "kernels", "kernels/adamw_control.h",
        "the bias correction of the second moment takes the wrong beta",
        "control[2] = correction(config.beta2);",
        "control[2] = correction(config.beta1);"),
    Fault(
        "cross_entropy_halves_the_gradient_of_z_loss", "kernels", "kernels/cross_entropy_cpu.cpp",
        "the derivative of lse^2 lacks its factor 2",
        "const double z = 1 + 2 * static_cast<double>(args.z_loss) * lse.value();",
        "const double z = 1 + static_cast<double>(args.z_loss) * lse.value();"),
    Fault(
        "attention_hides_the_first_token_of_a_document", "kernels", "kernels/attention_blocks_cpu.h",
        "the border of the document mask is off by one",
        "(read<IntVector>(v.first + column) <= j)",
        "(read<IntVector>(v.first + column) < j)"),
    Fault(
        "matmul_packs_sums_too_tightly", "kernels", "kernels/matmul_cpu.cpp",
        "the sums that wait between blocks of k overlap where the columns are no multiple of a panel",
        "float* sums = depth >= a_.k ? sums_ : sums_ + r * divide_up(columns, kNr) * kNr;",
        "float* sums = depth >= a_.k ? sums_ : sums_ + r * columns;"),
    Fault(
        "quantize_takes_the_stride_of_the_other_matrix", "kernels", "kernels/quantize_cpu.cpp",
        "the scales of blocks of a transpose are stored by the stride of the matrix: wrong unless it is square",
        "transposed.scales.as<float>()[j * transposed.scales.shape[1] + i] = scale;",
        "transposed.scales.as<float>()[j * matrix.scales.shape[1] + i] = scale;"),
    Fault(
        "sum_pieces_adds_in_the_type_of_the_wire", "kernels", "kernels/pieces_cpu.cpp",
        "gradients that ranks send as bf16 are summed in bf16",
        "        sum = sum + load(pieces + p * n + row + j, lanes);\n",
        "      {\n"
        "        From rounded[kLanes] = {};\n"
        "        store(rounded, sum + load(pieces + p * n + row + j, lanes), lanes);\n"
        "        sum = load(rounded, lanes);\n"
        "      }\n"),
    # ---------------------------------------------------------------------------------------------- dist
    Fault(
        "host_reduce_adds_from_the_last_rank", "dist", "dist/host_reduce.cpp",
        "the order of a sum is another: three ranks and more give other bits than before",
        "reinterpret_cast<const T*>(all[r]) + begin;",
        "reinterpret_cast<const T*>(all[all.size() - 1 - r]) + begin;"),
    Fault(
        "gradients_of_the_last_micro_batch_alone", "dist", "dist/param_store.cpp",
        "with sharded gradients each micro-batch replaces the sum of those before it",
        "ring_.reduce_scatter(reduction_streams(), comms_.shard, shard.grad, whole, each);",
        "ring_.reduce_scatter(reduction_streams(), comms_.shard, shard.grad, whole, false);"),
    Fault(
        "proof_signs_the_channel_alone", "dist", "dist/job/handshake.cpp",
        "rank and host of an introduction can be changed on the way, and the proof still holds",
        "text.insert(text.end(), introduction.begin(), introduction.end());",
        "text.insert(text.end(), introduction.begin(), introduction.begin() + 4);"),
    Fault(
        "volume_gathers_one_layer_too_often", "dist", "dist/volume.cpp",
        "the layer that is still whole after the forward counts as gathered again",
        "const auto backward = l < n - 2 ? m : 0;",
        "const auto backward = l <= n - 2 ? m : 0;"),
    # ---------------------------------------------------------------------------------------------- model
    Fault(
        "recompute_forgets_qk_norm", "model", "model/block.cpp",
        "with recompute = cheap the backward of a model with qk-norm reads queries and keys that were not computed",
        "  if (q_norm_) rotate(step, w, a);\n",
        ""),
    Fault(
        "predict_reads_the_first_positions", "model", "model/transformer.cpp",
        "the logits of the last m tokens are those of the first m",
        "x.rows(b * n + n - m, m)",
        "x.rows(b * n, m)"),
    Fault(
        "wrong_default_of_rms_norm_eps", "model", "model/families_config.cpp",
        "a config.json without rms_norm_eps gets the epsilon of GPT-2",
        "keys.number(\"rms_norm_eps\", 1e-6)",
        "keys.number(\"rms_norm_eps\", 1e-5)"),
    # ---------------------------------------------------------------------------------------------- data
    Fault(
        "megatron_accepts_holes", "data", "data/megatron.cpp",
        "a .idx whose sequences leave out a part of the .bin is accepted",
        "    if (offsets[i] != expected)\n",
        "    if (offsets[i] < expected)\n"),
    Fault(
        "rows_close_before_they_are_full", "data", "data/batch_rows.cpp",
        "a document that would fill a packed row exactly begins the next one",
        "inputs_of(starts_.back(), end) > T)\n      close(first);",
        "inputs_of(starts_.back(), end) >= T)\n      close(first);"),
    Fault(
        "shard_order_keeps_the_table_of_another_seed", "data", "data/shard_order.cpp",
        "a table that is kept is found by its epoch alone",
        "if (table.epoch == epoch && table.seed == seed) return table;",
        "if (table.epoch == epoch) return table;"),
    Fault(
        "verify_hashes_no_masks", "data", "data/pack/verify.cpp",
        "a loss mask with another bit passes `data verify`",
        "      if (about != nullptr) check_hash(shard.mask->file(), about->mask_hash);\n",
        ""),
    Fault(
        "loader_loses_an_error", "data", "data/loader.cpp",
        "a shard that cannot be read gives the batch that was in the buffer before",
        "    buffer.error = error;\n",
        ""),
    Fault(
        "token_offsets_overflow_int32", "data", "data/token_file.cpp",
        "tokens beyond 2 GiB of a shard are read from elsewhere",
        "return format_.header_bytes + token * format_.token_bytes;",
        "return format_.header_bytes + static_cast<std::int32_t>(token * format_.token_bytes);"),
    # ---------------------------------------------------------------------------------------------- checkpoint
    Fault(
        "slices_take_the_last_part_as_full", "checkpoint", "checkpoint/slices.cpp",
        "a dimension that its parts do not divide evenly ends in a part that is too long",
        "return std::min(split.step, size - first);",
        "return first < size ? split.step : 0;"),
    Fault(
        "retention_keeps_the_older_of_equals", "checkpoint", "checkpoint/retention.cpp",
        "of two checkpoints with the same validation loss the older one stays",
        "std::sort(losses.begin(), losses.end());",
        "std::stable_sort(losses.begin(), losses.end(),\n"
        "                   [](const auto& a, const auto& b) { return a.first < b.first; });"),
    Fault(
        "another_layout_loads_unverified", "checkpoint", "checkpoint/load.cpp",
        "slices of another layout, of which ranks read parts, are never compared with their hashes",
        "    unverified = true;\n",
        "    unverified = false;\n"),
    # ---------------------------------------------------------------------------------------------- train
    Fault(
        "gradient_norm_counts_every_tensor_rank", "train", "train/step/optimizer.cpp",
        "gradients that all tensor ranks hold count once for each in the norm",
        "const auto n = holders_of(mesh, /*is_divided=*/false, rank).counts() ? shard.grad.elements()",
        "const auto n = holders_of(mesh, /*is_divided=*/true, rank).counts() ? shard.grad.elements()"),
    Fault(
        "resume_skips_a_sample", "train", "train/run/resume.cpp",
        "a resumed run goes on one sample after the one that is next",
        ".first_sample = about.at(\"data\").at(\"first_sample\").as_integer(),",
        ".first_sample = about.at(\"data\").at(\"first_sample\").as_integer() + 1,"),
    Fault(
        "plan_counts_the_cost_of_a_save_twice", "launch", "launch/plan/run_costs.cpp",
        "the time until a checkpoint is whole holds what it costs already",
        "std::exp((R + S - C) / M)",
        "std::exp((R + S) / M)"),
    Fault(
        "preflight_takes_the_worse_median", "launch", "launch/preflight/health.cpp",
        "of two ranks the faulty one is the peer that it is compared with",
        "row.median = values[(values.size() - 1) / 2];",
        "row.median = values[values.size() / 2];"),
    # ---------------------------------------------------------------------------------------------- launch
    Fault(
        "config_accepts_an_archive_that_gets_nothing", "launch", "launch/config.cpp",
        "checkpoint.archive_directory is accepted without checkpoint.keep_every_steps",
        "require(c.archive_directory.empty() || c.keep_every_steps > 0, \"checkpoint.archive_directory\",",
        "require(c.archive_directory.empty() || c.keep_every_steps >= 0, \"checkpoint.archive_directory\","),
]
