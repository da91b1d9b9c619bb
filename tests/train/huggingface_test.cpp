// Against the directories that `transformers` itself saved: tests/oracle/fixtures.
#include "train/huggingface.h"

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "kernels/rope.h"
#include "model/families.h"
#include "tests/files.h"
#include "tests/train/model_weights.h"
#include "train/memory.h"

namespace lockstep::testing::huggingface_test {

namespace fs = std::filesystem;

const Family kAll[] = {Family::gpt2, Family::llama3, Family::qwen2, Family::qwen3, Family::smollm3};

fs::path fixture(Family family) {
  return fs::path(LOCKSTEP_FIXTURES) / name(family);
}

// A safetensors file in memory, to be changed and written.
struct Contents {
  struct Entry {
    StoredTensor stored;
    std::string bytes;
  };
  std::map<std::string, Entry> tensors;

  static Contents of(const fs::path& path) {
    Contents contents;
    const std::string bytes = slurp(path);
    const SafetensorsFile file(path);
    for (const auto& tensor : file.tensors())
      contents.tensors[tensor.name] = {tensor,
                                       bytes.substr(static_cast<std::size_t>(tensor.offset),
                                                    static_cast<std::size_t>(tensor.bytes))};
    return contents;
  }
  void write(const fs::path& path) const {
    std::vector<StoredTensor> list;
    for (const auto& [name, entry] : tensors) {
      list.push_back(entry.stored);
      list.back().name = name;
    }
    SafetensorsWriter writer(path, list);
    for (const auto& [name, entry] : tensors)
      writer.write(std::as_bytes(std::span(entry.bytes)));
    writer.commit();
  }
  std::map<std::string, std::string> bytes() const {
    std::map<std::string, std::string> all;
    for (const auto& [name, entry] : tensors)
      all[name] = entry.bytes;
    return all;
  }
};

// A tensor of these values in F64, F32, BF16, BOOL or U8.
Contents::Entry entry_of(StoredType type, const std::vector<std::int64_t>& shape,
                         const std::vector<double>& values) {
  Contents::Entry entry{{"", type, shape}, ""};
  const auto add = [&](auto value) {
    entry.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const double value : values)
    switch (type) {
      case StoredType::f64: add(value); break;
      case StoredType::f32: add(static_cast<float>(value)); break;
      case StoredType::bf16: add(to_bf16(static_cast<float>(value))); break;
      default: add(static_cast<std::uint8_t>(value));
    }
  entry.stored.bytes = std::ssize(entry.bytes);
  return entry;
}

// Of a tensor in F32.
std::vector<double> numbers_of(const Contents::Entry& entry) {
  std::vector<float> values(entry.bytes.size() / sizeof(float));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return {values.begin(), values.end()};
}

class HuggingFace : public ::testing::TestWithParam<Family> {
 protected:
  HuggingFace() : config_(huggingface_config(fixture(GetParam()))), weights_(config_) {}

  // A copy of the fixture whose weights went through `change`.
  template <class Change>
  fs::path changed(const Change& change) {
    auto path = directory_ / str("changed-", ++copies_);
    fs::create_directory(path);
    fs::copy(fixture(GetParam()) / "config.json", path / "config.json");
    auto contents = Contents::of(fixture(GetParam()) / "model.safetensors");
    change(contents.tensors);
    contents.write(path / "model.safetensors");
    return path;
  }
  std::string refusal(const fs::path& path) {
    return message_of<DataError>([&] { import_huggingface(path, config_, weights_.slices); });
  }

  TemporaryDirectory directory_;
  ModelConfig config_;
  ModelWeights weights_;
  int copies_ = 0;
};

TEST_P(HuggingFace, what_transformers_saved_is_exported_with_the_same_bytes) {
  import_huggingface(fixture(GetParam()), config_, weights_.slices);
  export_huggingface(directory_ / "out", config_, weights_.slices, {.dtype = DType::fp32});
  EXPECT_EQ(huggingface_config(directory_ / "out"), config_);
  const auto ours = Contents::of(directory_ / "out/model.safetensors");
  const auto theirs = Contents::of(fixture(GetParam()) / "model.safetensors");
  EXPECT_EQ(ours.bytes(), theirs.bytes());
  for (const auto& [name, entry] : ours.tensors)
    EXPECT_EQ(entry.stored.shape, theirs.tensors.at(name).stored.shape) << name;
}

TEST_P(HuggingFace, every_parameter_is_filled_and_in_pieces_the_same) {
  import_huggingface(fixture(GetParam()), config_, weights_.slices);
  for (const auto& [name, values] : weights_.values())
    for (const double value : values)
      ASSERT_FALSE(std::isnan(value)) << name;
  ModelWeights pieces(config_);
  import_huggingface(fixture(GetParam()), config_, pieces.halves());
  EXPECT_EQ(pieces.values(), weights_.values());
  export_huggingface(directory_ / "whole", config_, weights_.slices, {});
  export_huggingface(directory_ / "pieces", config_, pieces.halves(), {});
  EXPECT_EQ(slurp(directory_ / "whole/model.safetensors"),
            slurp(directory_ / "pieces/model.safetensors"));
}

TEST_P(HuggingFace, bf16_is_rounded_once_on_either_way) {
  import_huggingface(fixture(GetParam()), config_, weights_.slices);
  ModelWeights rounded(config_, DType::bf16);
  import_huggingface(fixture(GetParam()), config_, rounded.slices);
  auto expected = weights_.values();
  for (auto& [name, values] : expected)
    for (double& value : values)
      value = to_float(to_bf16(static_cast<float>(value)));
  EXPECT_EQ(rounded.values(), expected);
  export_huggingface(directory_ / "a", config_, weights_.slices, {.dtype = DType::bf16});
  export_huggingface(directory_ / "b", config_, rounded.slices, {.dtype = DType::bf16});
  EXPECT_EQ(slurp(directory_ / "a/model.safetensors"), slurp(directory_ / "b/model.safetensors"));
  ModelWeights again(config_);
  import_huggingface(directory_ / "b", config_, again.slices);
  EXPECT_EQ(again.values(), expected);
}

TEST_P(HuggingFace, shards_hold_each_tensor_once_and_are_read_back) {
  import_huggingface(fixture(GetParam()), config_, weights_.slices);
  const auto out = directory_ / "out";
  export_huggingface(out, config_, weights_.slices, {.dtype = DType::fp32, .shard_bytes = 9000});
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));
  const Json index = Json::parse(slurp(out / "model.safetensors.index.json"), "index");
  std::map<std::string, std::string> bytes, files;
  std::int64_t total = 0;
  for (const auto& [name, file] : index.at("weight_map").as_object()) {
    const auto shard = Contents::of(out / file.as_string());
    std::int64_t data = 0;
    for (const auto& [tensor, entry] : shard.tensors)
      data += entry.stored.bytes;
    EXPECT_TRUE(shard.tensors.size() == 1 || data <= 9000) << data;
    bytes[name] = shard.tensors.at(name).bytes;
    total += std::ssize(bytes[name]);
    files[file.as_string()] = name;
  }
  const auto count = std::to_string(files.size());
  EXPECT_EQ(files.begin()->first,
            "model-00001-of-" + std::string(5 - count.size(), '0') + count + ".safetensors");
  EXPECT_EQ(bytes, Contents::of(fixture(GetParam()) / "model.safetensors").bytes());
  EXPECT_EQ(index.at("metadata").at("total_size").as_integer(), total);
  ModelWeights again(config_);
  import_huggingface(out, config_, again.slices);
  EXPECT_EQ(again.values(), weights_.values());
}

TEST_P(HuggingFace, an_index_of_other_files_beside_a_single_one_is_refused) {
  import_huggingface(fixture(GetParam()), config_, weights_.slices);
  const auto out = directory_ / "out";
  export_huggingface(out, config_, weights_.slices, {.dtype = DType::fp32, .shard_bytes = 9000});
  fs::copy(fixture(GetParam()) / "model.safetensors", out / "model.safetensors");
  expect_contains(refusal(out),
                  ", but model.safetensors lies beside it; expected the weights once");
  spit(out / "model.safetensors.index.json", R"({"weight_map": {"a": "model.safetensors"}})");
  import_huggingface(out, config_, weights_.slices);
}

TEST_P(HuggingFace, an_index_that_leads_elsewhere_is_refused) {
  import_huggingface(fixture(GetParam()), config_, weights_.slices);
  const auto out = directory_ / "out";
  export_huggingface(out, config_, weights_.slices, {.dtype = DType::fp32, .shard_bytes = 9000});
  const fs::path path = out / "model.safetensors.index.json";
  const Json index = Json::parse(slurp(path), "index");
  const auto& map = index.at("weight_map").as_object();
  const std::string first = map.front().first, file = map.back().second.as_string();
  const auto refusal_with = [&](const std::string& other_file) {
    Json wrong = index, wrong_map = index.at("weight_map");
    wrong_map.set(first, other_file);
    wrong.set("weight_map", wrong_map);
    spit(path, wrong.dump());
    return refusal(out);
  };
  expect_contains(refusal_with(file), "index.json: " + first + " is not in " + file +
                                          "; expected it there by the index. Copy");
  expect_contains(refusal_with("../" + file), "is not one beside it");
  expect_contains(refusal_with("absent"), "absent: cannot open");
  spit(path, "{}");
  expect_contains(refusal(out), "index.json: the key \"weight_map\" is missing");
}

TEST_P(HuggingFace, missing_unexpected_and_misshapen_tensors_are_named) {
  const auto tensors = huggingface_tensors(config_);
  const std::string last = tensors.back().name;
  expect_contains(refusal(changed([&](auto& all) { all.erase(last); })), " missing: " + last);
  expect_contains(refusal(changed([&](auto& all) { all["extra"] = all[last]; })),
                  "; unexpected: extra. Take config.json and the weights from one model");
  const auto many = refusal(changed([&](auto& all) { all.clear(); }));
  expect_contains(many, "missing: ");
  expect_contains(many, str(" and ", tensors.size() - 5, " more"));
  const std::string matrix = tensors.front().name;
  expect_contains(refusal(changed([&](auto& all) {
                    std::swap(all[matrix].stored.shape[0], all[matrix].stored.shape[1]);
                  })),
                  matrix + " has the shape [");
  expect_contains(refusal(changed([&](auto& all) { all[matrix].stored.type = StoredType::i32; })),
                  matrix + " is stored as I32; expected F64, F32, BF16 or F16. Dequantise");
}

TEST_P(HuggingFace, names_without_the_prefix_of_a_headed_model_are_understood) {
  import_huggingface(fixture(GetParam()), config_, weights_.slices);
  const auto bare = changed([](auto& all) {
    auto old = std::move(all);
    all.clear();
    for (auto& [name, entry] : old) {
      const auto dot = name.find('.');
      const auto start = name.substr(0, dot);
      all[start == "model" || start == "transformer" ? name.substr(dot + 1) : name] = entry;
    }
  });
  ModelWeights again(config_);
  import_huggingface(bare, config_, again.slices);
  EXPECT_EQ(again.values(), weights_.values());
  const auto tensor = huggingface_tensors(config_)[1].name;
  const auto twice =
      changed([&](auto& all) { all[tensor.substr(tensor.find('.') + 1)] = all[tensor]; });
  expect_contains(refusal(twice), "is there twice");
}

TEST_P(HuggingFace, doubles_become_fp32) {
  std::map<std::string, std::vector<double>> doubles;
  const auto path = changed([&](auto& all) {
    for (auto& [name, entry] : all) {
      auto& values = doubles[name] = numbers_of(entry);
      for (double& value : values)
        value += 1e-9 * std::abs(value);
      entry = entry_of(StoredType::f64, entry.stored.shape, values);
    }
  });
  import_huggingface(path, config_, weights_.slices);
  export_huggingface(directory_ / "out", config_, weights_.slices, {.dtype = DType::fp32});
  for (const auto& [name, entry] : Contents::of(directory_ / "out/model.safetensors").tensors)
    EXPECT_EQ(entry.bytes, entry_of(StoredType::f32, entry.stored.shape, doubles.at(name)).bytes)
        << name;
}

INSTANTIATE_TEST_SUITE_P(all, HuggingFace, ::testing::ValuesIn(kAll),
                         [](const auto& p) { return std::string(name(p.param)); });

// The same models with a tied head; `embedding_` has values that every type holds.
class TiedHead : public HuggingFace {
 protected:
  TiedHead() {
    config_.tied_head = true;
    name_ = huggingface_tensors(config_)[0].name;
    auto& entry = original_.tensors.at(name_);
    embedding_ = numbers_of(entry);
    for (double& value : embedding_)
      value = static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
    shape_ = entry.stored.shape;
    original_.tensors.erase("lm_head.weight");
  }
  // A directory with these two; nothing for a tensor that it leaves out.
  fs::path directory_with(const std::optional<Contents::Entry>& embedding,
                          const std::optional<Contents::Entry>& head) {
    return changed([&](auto& all) {
      all = original_.tensors;
      all.erase(name_);
      if (embedding) all[name_] = *embedding;
      if (head) all["lm_head.weight"] = *head;
    });
  }
  Contents::Entry stored_as(StoredType type, const std::vector<double>& values) const {
    return entry_of(type, shape_, values);
  }
  std::map<std::string, Doubles> imported(const fs::path& path) const {
    ModelWeights weights(config_);
    import_huggingface(path, config_, weights.slices);
    return weights.values();
  }

  Contents original_ = Contents::of(fixture(GetParam()) / "model.safetensors");
  std::string name_;
  std::vector<double> embedding_;
  std::vector<std::int64_t> shape_;
};

constexpr StoredType kFloats[] = {StoredType::f64, StoredType::f32, StoredType::bf16};

TEST_P(TiedHead, a_copy_of_the_embedding_in_any_type_is_left_out) {
  const auto expected = imported(directory_with(stored_as(StoredType::f32, embedding_), {}));
  EXPECT_EQ(expected.at(name_), embedding_);
  for (const auto type : kFloats)
    for (const auto head : kFloats)
      EXPECT_EQ(imported(directory_with(stored_as(type, embedding_), stored_as(head, embedding_))),
                expected)
          << name(type) << " " << name(head);
}

TEST_P(TiedHead, a_head_that_differs_in_one_element_is_refused_with_the_key_to_set) {
  const auto n = embedding_.size();
  for (const auto type : kFloats)
    for (const auto at : {std::size_t{0}, n / 3, n - 1}) {
      auto head = embedding_;
      head[at] = head[at] == 0.5 ? 0.25 : 0.5;
      const auto text =
          refusal(directory_with(stored_as(StoredType::f32, embedding_), stored_as(type, head)));
      expect_contains(text,
                      str("lm_head.weight differs from ", name_, " in 1 of ", n, " elements"));
      expect_contains(text, "\"tie_word_embeddings\" is true, or absent. Set it to false");
    }
  const auto text = refusal(directory_with(
      stored_as(StoredType::f32, embedding_),
      entry_of(StoredType::f32, {shape_[0] + 1, shape_[1]},
               std::vector<double>(static_cast<std::size_t>((shape_[0] + 1) * shape_[1])))));
  expect_contains(text, "lm_head.weight has the shape [");
}

TEST_P(TiedHead, ranks_that_hold_parts_compare_all_of_it_together) {
  ModelWeights weights(config_);
  const auto columns = weights.columns();
  const auto halves = weights.halves();
  for (const auto at : {std::size_t{0}, embedding_.size() - 1}) {
    auto head = embedding_;
    head[at] = head[at] == 0.5 ? 0.25 : 0.5;
    const auto path =
        directory_with(stored_as(StoredType::f32, embedding_), stored_as(StoredType::f32, head));
    // Of each way to cut it, the rank with the element refuses, and no other.
    for (const auto* all : {&columns, &halves}) {
      int refusals = 0;
      for (const bool first : {true, false}) {
        std::vector<StateSlice> part;
        for (const auto& slice : *all)
          if (slice.name != name_ || (slice.piece.part == 0 && slice.piece.begin == 0) == first)
            part.push_back(slice);
        try {
          import_huggingface(path, config_, part);
        } catch (const DataError&) {
          ++refusals;
        }
      }
      EXPECT_EQ(refusals, 1) << at;
    }
  }
}

TEST_P(TiedHead, the_embedding_is_loaded_from_a_head_that_is_alone) {
  const auto embedding = stored_as(StoredType::f32, embedding_);
  EXPECT_EQ(imported(directory_with({}, embedding)), imported(directory_with(embedding, {})));
  const auto neither = refusal(directory_with({}, {}));
  expect_contains(neither, " missing: " + name_);
}

TEST_P(TiedHead, a_head_in_another_shard_is_compared_too) {
  ModelWeights weights(config_);
  import_huggingface(directory_with(stored_as(StoredType::f32, embedding_), {}), config_,
                     weights.slices);
  const auto out = directory_ / "out";
  export_huggingface(out, config_, weights.slices, {.dtype = DType::fp32, .shard_bytes = 9000});
  const auto add_head = [&](const std::vector<double>& values) {
    Contents shard;
    shard.tensors["lm_head.weight"] = stored_as(StoredType::f32, values);
    shard.write(out / "head.safetensors");
    const fs::path path = out / "model.safetensors.index.json";
    Json index = Json::parse(slurp(path), "index"), map = index.at("weight_map");
    map.set("lm_head.weight", "head.safetensors");
    index.set("weight_map", map);
    spit(path, index.dump());
  };
  add_head(embedding_);
  EXPECT_EQ(imported(out), weights.values());
  auto head = embedding_;
  head.back() += 1;
  add_head(head);
  expect_contains(refusal(out), "head.safetensors: at byte ");
}

INSTANTIATE_TEST_SUITE_P(all, TiedHead, ::testing::ValuesIn(kAll),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST(HuggingFaceFiles, an_untied_model_without_its_head_names_the_key_to_set) {
  for (const auto family : kAll) {
    auto config = huggingface_config(fixture(family));
    config.tied_head = false;
    const TemporaryDirectory directory;
    auto contents = Contents::of(fixture(family) / "model.safetensors");
    contents.tensors.erase("lm_head.weight");
    contents.write(directory / "model.safetensors");
    ModelWeights weights(config);
    expect_contains(message_of<DataError>(
                        [&] { import_huggingface(directory.path(), config, weights.slices); }),
                    "missing: lm_head.weight; set \"tie_word_embeddings\": true if");
  }
}

// Buffers of old files beside the weights of a fixture.
class Buffers : public ::testing::Test {
 protected:
  // "" for a directory that is read.
  std::string refusal(Family family, const std::string& name, const Contents::Entry& buffer) {
    auto config = huggingface_config(fixture(family));
    auto contents = Contents::of(fixture(family) / "model.safetensors");
    contents.tensors[name] = buffer;
    contents.write(directory_ / "model.safetensors");
    ModelWeights weights(config);
    try {
      import_huggingface(directory_.path(), config, weights.slices);
      return "";
    } catch (const DataError& error) {
      return error.what();
    }
  }

  TemporaryDirectory directory_;
};

TEST_F(Buffers, a_causal_mask_is_left_out_and_any_other_is_refused) {
  const std::int64_t n = 5;
  std::vector<double> mask;
  for (std::int64_t i = 0; i < n * n; ++i)
    mask.push_back(i % n <= i / n ? 1 : 0);
  for (const auto type :
       {StoredType::u8, StoredType::boolean, StoredType::f32, StoredType::bf16, StoredType::f64}) {
    const auto refused = [&](const char* name, const std::vector<double>& values) {
      return refusal(Family::gpt2, name, entry_of(type, {1, 1, n, n}, values));
    };
    EXPECT_EQ(refused("transformer.h.1.attn.bias", mask), "");
    EXPECT_EQ(refused("h.0.attn.bias", mask), "");
    auto sees_all = mask, sees_less = mask;
    sees_all[n - 1] = 1;
    sees_less.back() = 0;
    expect_contains(refused("h.0.attn.bias", sees_all),
                    "h.0.attn.bias is 1 for query 0 and key 4; expected 0");
    expect_contains(refused("h.0.attn.bias", sees_all), "computed. Choose a causal model");
    expect_contains(refused("h.0.attn.bias", sees_less), "is 0 for query 4 and key 4; expected 1");
    expect_contains(refused("h.2.attn.bias", mask), "unexpected: h.2.attn.bias");
  }
  expect_contains(refusal(Family::gpt2, "h.0.attn.bias", entry_of(StoredType::f32, {25}, mask)),
                  "has the shape [25]; expected one square matrix, the mask of causal attention. "
                  "Remove the tensor if every token attends to all earlier tokens");
  expect_contains(
      refusal(Family::gpt2, "h.0.attn.bias", entry_of(StoredType::f32, {5, 5, 1}, mask)),
      "has the shape [5, 5, 1]; expected one square matrix");
}

TEST_F(Buffers, a_masked_score_that_leaves_keys_in_is_refused) {
  const auto refused = [&](StoredType type, double value) {
    return refusal(Family::gpt2, "h.0.attn.masked_bias", entry_of(type, {}, {value}));
  };
  EXPECT_EQ(refused(StoredType::f32, -1e4), "");
  EXPECT_EQ(refused(StoredType::bf16, -1e4), "");
  EXPECT_EQ(refused(StoredType::f32, -INFINITY), "");
  expect_contains(refused(StoredType::f32, -1), "masked_bias is -1; expected at most -1000");
  expect_contains(refused(StoredType::f32, NAN), "masked_bias is nan");
  expect_contains(
      refusal(Family::gpt2, "h.0.attn.masked_bias", entry_of(StoredType::f32, {2}, {-1e4, -1e4})),
      "has the shape [2]; expected one element. Remove the tensor if every token attends to all "
      "earlier tokens");
  expect_contains(refusal(Family::gpt2, "h.0.attn.masked_bias", entry_of(StoredType::f32, {0}, {})),
                  "has the shape [0]; expected one element");
}

TEST_F(Buffers, frequencies_of_another_rope_are_refused) {
  for (const auto family : {Family::llama3, Family::qwen2, Family::qwen3, Family::smollm3}) {
    const auto c = huggingface_config(fixture(family));
    const auto frequencies = [&](float theta) {
      std::vector<double> all;
      for (std::int64_t i = 0; i < c.head_size / 2; ++i)
        all.push_back(
            static_cast<double>(inverse_frequency(i, c.head_size, theta, c.rope_scaling)));
      return all;
    };
    for (const auto type : kFloats) {
      const auto refused = [&](const char* name, const std::vector<double>& values) {
        return refusal(family, name, entry_of(type, {c.head_size / 2}, values));
      };
      for (const char* name :
           {"model.layers.0.self_attn.rotary_emb.inv_freq",
            "layers.1.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"}) {
        EXPECT_EQ(refused(name, frequencies(c.rope_theta)), "");
        expect_contains(refused(name, frequencies(2 * c.rope_theta)),
                        str("from rope_theta ", c.rope_theta, " and the scaling"));
      }
      expect_contains(refused("layers.99.self_attn.rotary_emb.inv_freq", frequencies(c.rope_theta)),
                      "unexpected: layers.99.");
    }
    expect_contains(
        refusal(family, "model.rotary_emb.inv_freq", entry_of(StoredType::f32, {1}, {1.0})),
        "inv_freq has the shape [1]");
    expect_contains(refusal(family, "model.rotary_emb.inv_freq",
                            entry_of(StoredType::f32, {1, 1, 2, 1, 1}, {1.0, 1.0})),
                    "inv_freq has the shape [1, 1, 2, 1, 1]; expected [");
  }
}

TEST(HuggingFaceFiles, names_of_wrapped_quantised_and_adapted_models_are_explained) {
  const auto config = huggingface_config(fixture(Family::qwen3));
  const std::pair<const char*, const char*> marks[] = {
      {"_orig_mod.model.norm.weight", "torch.compile wrapped. Save model._orig_mod, or take"},
      {"model.layers.0._orig_mod.mlp.up_proj.weight", "torch.compile wrapped"},
      {"module.model.norm.weight", "DistributedDataParallel wrapped"},
      {"model.layers.0._fsdp_wrapped_module.mlp.up_proj.weight", "FSDP or activation"},
      {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "of an adapter"},
      {"model.layers.0.self_attn.q_proj.qweight", "quantised; expected F64, F32, BF16 or F16"},
      {"model.layers.0.self_attn.q_proj.weight_scale_inv", "quantised"},
      {"model.layers.0.self_attn.q_proj.weight.absmax", "quantised"}};
  for (const auto& [name, expected] : marks) {
    const TemporaryDirectory directory;
    auto contents = Contents::of(fixture(Family::qwen3) / "model.safetensors");
    contents.tensors[name] = contents.tensors.begin()->second;
    contents.write(directory / "model.safetensors");
    ModelWeights weights(config);
    const auto text = message_of<DataError>(
        [&] { import_huggingface(directory.path(), config, weights.slices); });
    expect_contains(text, str(name, ": "));
    expect_contains(text, expected);
  }
}

TEST(HuggingFaceFiles, fused_and_turned_matrices_of_gpt2_come_apart) {
  const auto config = huggingface_config(fixture(Family::gpt2));
  ModelWeights weights(config);
  import_huggingface(fixture(Family::gpt2), config, weights.slices);
  const auto values = weights.values();
  const SafetensorsFile file(fixture(Family::gpt2) / "model.safetensors");
  const std::string c_attn = "transformer.h.1.attn.c_attn";
  const auto D = config.width;
  Bench bench;
  Tensor fused = bench.poisoned({D, 3 * D}, DType::fp32),
         bias = bench.poisoned({3 * D}, DType::fp32);
  file.read(*file.find(c_attn + ".weight"), 0, fused);
  file.read(*file.find(c_attn + ".bias"), 0, bias);
  const char* parts[] = {".q", ".k", ".v"};
  for (std::int64_t part = 0; part < 3; ++part)
    for (std::int64_t output = 0; output < D; ++output) {
      const auto column = part * D + output;
      EXPECT_EQ(values.at(c_attn + parts[part] + ".bias")[static_cast<std::size_t>(output)],
                bias.as<float>()[column]);
      for (std::int64_t input = 0; input < D; ++input)
        ASSERT_EQ(values.at(c_attn + parts[part] +
                            ".weight")[static_cast<std::size_t>(output * D + input)],
                  fused.as<float>()[input * 3 * D + column]);
    }
}

// More inputs than are turned at a time, and more elements than are read or written at once.
TEST(HuggingFaceFiles, a_model_larger_than_the_buffers_survives_the_way_out_and_back) {
  auto config = huggingface_config(fixture(Family::gpt2));
  config.width = 210;
  config.head_size = 70;
  config.mlp_width = 500;
  config.vocabulary = 2000;
  ModelWeights weights(config), again(config);
  for (const auto& slice : weights.slices)
    for (std::int64_t i = 0; i < slice.local.elements(); ++i)
      Bench::set(slice.local, i,
                 philox(3, purpose_of(slice.name), static_cast<std::uint64_t>(i))[0] % 65536);
  const TemporaryDirectory directory;
  export_huggingface(directory / "out", config, weights.slices, {.dtype = DType::fp32});
  import_huggingface(directory / "out", config, again.slices);
  EXPECT_EQ(again.values(), weights.values());
}

// In a process of its own, whose peak nothing else has raised.
TEST(HuggingFaceFiles, no_second_copy_of_the_model_is_ever_in_memory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "freed memory stays with the sanitizer";
#endif
  for (const auto family : {Family::gpt2, Family::llama3}) {
    auto config = huggingface_config(fixture(family));
    config.layers = 4;
    config.width = 320;
    config.heads = config.kv_heads = 5;
    config.head_size = 64;
    config.mlp_width = 1280;
    const TemporaryDirectory directory;
    const auto move_weights = [&] {
      ModelWeights weights(config);
      std::int64_t model_bytes = 0;
      for (const auto& slice : weights.slices)
        model_bytes += slice.local.bytes();
      const auto before = used_memory_bytes(Device{});
      export_huggingface(directory / "out", config, weights.slices, {.dtype = DType::fp32});
      import_huggingface(directory / "out", config, weights.slices);
      const auto more = used_memory_bytes(Device{}) - before;
      std::cerr << more << " bytes beside a model of " << model_bytes;
      std::exit(more < model_bytes / 3 ? 0 : 1);
    };
    EXPECT_EXIT(move_weights(), ::testing::ExitedWithCode(0), "") << name(family);
  }
}

TEST(HuggingFaceFiles, a_directory_without_weights_says_what_to_do) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(is_huggingface_directory(directory.path()));
  expect_contains(message_of<DataError>([&] { huggingface_config(directory.path()); }),
                  "config.json: cannot open");
  fs::copy(fixture(Family::llama3) / "config.json", directory / "config.json");
  spit(directory / "pytorch_model.bin", "x");
  EXPECT_TRUE(is_huggingface_directory(directory.path()));
  const auto config = huggingface_config(directory.path());
  ModelWeights weights(config);
  expect_contains(
      message_of<DataError>([&] { import_huggingface(directory.path(), config, weights.slices); }),
      "save it with save_pretrained()");
}

TEST(HuggingFaceFiles, a_config_may_hold_nan_in_members_that_are_not_read) {
  const TemporaryDirectory directory;
  const auto text = slurp(fixture(Family::llama3) / "config.json");
  const auto read_with = [&](const std::string& member) {
    spit(directory / "config.json", "{" + member + text.substr(text.find('{') + 1));
    return huggingface_config(directory.path());
  };
  EXPECT_EQ(read_with(R"("loss": NaN, "scores": [Infinity, {"least": -Infinity}],)"),
            huggingface_config(fixture(Family::llama3)));
  const std::pair<const char*, const char*> refused[] = {
      {R"("sliding_window": -Infinity,)",
       R"(config.json: sliding_window: expected null, got "-Infinity")"},
      {R"("rope_scaling": {"type": "llama3", "factor": NaN},)",
       R"(config.json: rope_scaling: factor: expected a number, got "NaN")"},
      {R"("rope_scaling": {"type": "llama3", "original_max_position_embeddings": Infinity},)",
       R"(original_max_position_embeddings: expected an integer, got "Infinity")"}};
  for (const auto& [member, expected] : refused)
    expect_contains(message_of<DataError>([&] { read_with(member); }), expected);
}

TEST(HuggingFaceFiles, an_export_copies_tokenizer_files_and_overwrites_nothing) {
  const TemporaryDirectory directory;
  const auto config = huggingface_config(fixture(Family::qwen2));
  ModelWeights weights(config);
  import_huggingface(fixture(Family::qwen2), config, weights.slices);
  fs::create_directory(directory / "from");
  const std::string odd = std::string("{\"a\":\r\n \xff") + '\0' + "}";
  for (const char* name : {"tokenizer.json", "merges.txt", "config.json", "model.safetensors"})
    spit(directory / "from" / name, odd);
  const auto write = [&] {
    export_huggingface(directory / "out", config, weights.slices,
                       {.tokenizer_from = directory / "from"});
  };
  write();
  EXPECT_EQ(slurp(directory / "out/tokenizer.json"), odd);
  EXPECT_EQ(slurp(directory / "out/merges.txt"), odd);
  EXPECT_EQ(huggingface_config(directory / "out"), config);
  const Json json = Json::parse(slurp(directory / "out/config.json"), "config");
  EXPECT_EQ(json.at("torch_dtype").as_string(), "bfloat16");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory / "out"), {}), 4);
  expect_contains(message_of<UsageError>(write), "expected an empty directory");
}

TEST(HuggingFaceFiles, a_tokenizer_that_is_not_there_is_refused) {
  const TemporaryDirectory directory;
  spit(directory / "config.json", "{}");
  for (const auto& from : {directory.path(), directory / "nowhere"})
    expect_contains(message_of<DataError>([&] { copy_tokenizer(from, directory.path()); }),
                    from.string() + ": holds no tokenizer");
}

TEST(HuggingFaceFiles, an_export_that_fails_is_not_taken_for_a_model) {
  const SmallDisk disk(std::int64_t{40} << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  const auto config = huggingface_config(fixture(Family::llama3));
  ModelWeights weights(config);
  import_huggingface(fixture(Family::llama3), config, weights.slices);
  EXPECT_THROW(export_huggingface(disk.path() / "out", config, weights.slices,
                                  {.dtype = DType::fp32, .shard_bytes = 9000}),
               DataError);
  EXPECT_FALSE(is_huggingface_directory(disk.path() / "out"));
}

}  // namespace lockstep::testing::huggingface_test
