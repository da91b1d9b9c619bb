// Compared with directories that `transformers` saved: tests/oracle/fixtures.
#include "train/interop/huggingface.h"

#include <functional>
#include <set>
#include <tuple>

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "kernels/rope.h"
#include "model/families.h"
#include "tests/train/model_weights.h"
#include "tests/wording.h"
#include "train/step/memory.h"

namespace lockstep::testing::huggingface_test {

namespace fs = std::filesystem;

const Family kAll[] = {Family::gpt2, Family::llama3, Family::qwen2, Family::qwen3, Family::smollm3};
constexpr StoredType kFloats[] = {StoredType::f64, StoredType::f32, StoredType::bf16};
constexpr const char* kReader = "train/huggingface";
constexpr const char* kHead = "lm_head.weight";

fs::path fixture(Family family) {
  return fs::path(LOCKSTEP_FIXTURES) / name(family);
}

// A tensor of a safetensors file, to be changed and written.
struct Entry {
  StoredTensor stored;
  std::string bytes;
  friend bool operator==(const Entry& a, const Entry& b) {
    return a.stored.type == b.stored.type && a.stored.shape == b.stored.shape && a.bytes == b.bytes;
  }
};
using Tensors = std::map<std::string, Entry>;

Tensors read_tensors(const fs::path& path) {
  Tensors tensors;
  const std::string bytes = slurp(path);
  const SafetensorsFile file(path);
  for (const auto& tensor : file.tensors())
    tensors[tensor.name] = {tensor, bytes.substr(static_cast<std::size_t>(tensor.offset),
                                                 static_cast<std::size_t>(tensor.bytes))};
  return tensors;
}

void write_tensors(const fs::path& path, const Tensors& tensors) {
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

// A tensor of these values in F64, F32, BF16, BOOL or U8.
Entry entry_of(StoredType type, const std::vector<std::int64_t>& shape, const Doubles& values) {
  Entry entry{{"", type, shape}, ""};
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

// The values of a tensor in F32.
Doubles numbers_of(const Entry& entry) {
  std::vector<float> values(entry.bytes.size() / sizeof(float));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return {values.begin(), values.end()};
}

Doubles rounded_to_bf16(Doubles values) {
  for (double& value : values)
    value = static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
  return values;
}

// A model of the fixtures, and directories with changed copies of its weights.
struct Model {
  explicit Model(Family of)
      : family(of),
        config(huggingface_config(fixture(of))),
        weights(config),
        tensors(read_tensors(fixture(of) / "model.safetensors")) {
    import_huggingface(fixture(family), config, weights.slices);
  }

  // A directory with only the tensors after `change`.
  template <class Change>
  fs::path changed(const Change& change) const {
    auto path = directory / "changed";
    fs::create_directory(path);
    auto all = tensors;
    change(all);
    write_tensors(path / "model.safetensors", all);
    return path;
  }
  fs::path with(const std::string& name, const Entry& entry) const {
    return changed([&](Tensors& all) { all[name] = entry; });
  }
  // A directory with the tensors in shards of at most 9000 bytes.
  fs::path in_shards(const ModelWeights& all) const {
    auto path = directory / "shards";
    export_huggingface(path, config, all.slices, {.dtype = DType::fp32, .shard_bytes = 9000});
    return path;
  }

  std::map<std::string, Doubles> imported(const fs::path& path, DType dtype = DType::fp32) const {
    ModelWeights found(config, dtype);
    import_huggingface(path, config, found.slices);
    return found.values();
  }
  // `what`: name of the message, after the family's name.
  void expect_refused(const std::string& what, std::initializer_list<std::string> pins,
                      const fs::path& path) const {
    expect_refusal<DataError>(kReader, str(name(family), ": ", what), pins,
                              [&] { imported(path); });
  }

  Family family;
  TemporaryDirectory directory;
  ModelConfig config;
  ModelWeights weights;  // as they were imported from the fixture
  Tensors tensors;
};

class HuggingFace : public ::testing::TestWithParam<Family> {
 protected:
  Model model_{GetParam()};
  const TemporaryDirectory& directory_ = model_.directory;
};

TEST_P(HuggingFace, a_model_of_transformers_is_exported_with_the_same_bytes) {
  export_huggingface(directory_ / "out", model_.config, model_.weights.slices,
                     {.dtype = DType::fp32});
  EXPECT_EQ(huggingface_config(directory_ / "out"), model_.config);
  EXPECT_EQ(read_tensors(directory_ / "out/model.safetensors"), model_.tensors);
}

TEST_P(HuggingFace, every_parameter_is_filled_whole_or_in_pieces) {
  for (const auto& [name, values] : model_.weights.values())
    for (const double value : values)
      ASSERT_FALSE(std::isnan(value)) << name;
  ModelWeights pieces(model_.config);
  import_huggingface(fixture(GetParam()), model_.config, pieces.halves());
  EXPECT_EQ(pieces.values(), model_.weights.values());
  export_huggingface(directory_ / "whole", model_.config, model_.weights.slices, {});
  export_huggingface(directory_ / "pieces", model_.config, pieces.halves(), {});
  EXPECT_EQ(slurp(directory_ / "whole/model.safetensors"),
            slurp(directory_ / "pieces/model.safetensors"));
}

TEST_P(HuggingFace, bf16_is_rounded_once_on_import_and_export) {
  const auto& config = model_.config;
  ModelWeights rounded(config, DType::bf16);
  import_huggingface(fixture(GetParam()), config, rounded.slices);
  auto expected = model_.weights.values();
  for (auto& [name, values] : expected)
    values = rounded_to_bf16(values);
  EXPECT_EQ(rounded.values(), expected);
  export_huggingface(directory_ / "a", config, model_.weights.slices, {.dtype = DType::bf16});
  export_huggingface(directory_ / "b", config, rounded.slices, {.dtype = DType::bf16});
  EXPECT_EQ(slurp(directory_ / "a/model.safetensors"), slurp(directory_ / "b/model.safetensors"));
  EXPECT_EQ(model_.imported(directory_ / "b"), expected);
}

TEST_P(HuggingFace, shards_hold_each_tensor_once_and_are_read_back) {
  const auto path = model_.in_shards(model_.weights);
  EXPECT_FALSE(fs::exists(path / "model.safetensors"));
  const Json index = Json::parse(slurp(path / "model.safetensors.index.json"), "index");
  Tensors found;
  std::set<std::string> files;
  std::int64_t total = 0;
  for (const auto& [name, file] : index.at("weight_map").as_object()) {
    const auto shard = read_tensors(path / file.as_string());
    std::int64_t data = 0;
    for (const auto& [tensor, entry] : shard)
      data += entry.stored.bytes;
    EXPECT_TRUE(shard.size() == 1 || data <= 9000) << data;
    found[name] = shard.at(name);
    total += found[name].stored.bytes;
    files.insert(file.as_string());
  }
  const auto count = std::to_string(files.size());
  EXPECT_EQ(*files.begin(),
            "model-00001-of-" + std::string(5 - count.size(), '0') + count + ".safetensors");
  EXPECT_EQ(found, model_.tensors);
  EXPECT_EQ(index.at("metadata").at("total_size").as_integer(), total);
  EXPECT_EQ(model_.imported(path), model_.weights.values());
}

TEST_P(HuggingFace, an_index_with_wrong_files_is_an_error) {
  const auto shards = model_.in_shards(model_.weights);
  const fs::path path = shards / "model.safetensors.index.json";
  const Json index = Json::parse(slurp(path), "index");
  const auto& map = index.at("weight_map").as_object();
  const std::string first = map.front().first, file = map.back().second.as_string();
  const std::tuple<const char*, std::string, std::string> cases[] = {
      {"a shard without the tensor", file, first + " is not in " + file},
      {"a file elsewhere", "../" + file, "../" + file},
      {"a file that is absent", "absent", "absent: "}};
  for (const auto& [what, other_file, pin] : cases) {
    Json wrong = index, wrong_map = index.at("weight_map");
    wrong_map.set(first, other_file);
    wrong.set("weight_map", wrong_map);
    spit(path, wrong.dump());
    model_.expect_refused(str("index: ", what), {pin}, shards);
  }
  spit(path, "{}");
  model_.expect_refused("index: no map", {"index.json: ", "\"weight_map\""}, shards);
  spit(path, index.dump());
  fs::copy(fixture(GetParam()) / "model.safetensors", shards / "model.safetensors");
  model_.expect_refused("index: a single file beside it", {"model.safetensors"}, shards);
  spit(path, R"({"weight_map": {"a": "model.safetensors"}})");
  EXPECT_NO_THROW(model_.imported(shards));
}

TEST_P(HuggingFace, tensors_of_another_model_are_errors_that_name_them) {
  const auto listed = huggingface_tensors(model_.config);
  const std::string last = listed.back().name, matrix = listed.front().name;
  const auto bare = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  const std::tuple<const char*, std::string, std::function<void(Tensors&)>> changes[] = {
      {"a tensor is missing", last, [&](Tensors& all) { all.erase(last); }},
      {"a tensor too many", "extra", [&](Tensors& all) { all["extra"] = all[last]; }},
      {"all are missing", str(listed.size() - 5), [&](Tensors& all) { all.clear(); }},
      {"another shape", matrix,
       [&](Tensors& all) {
         auto& shape = all[matrix].stored.shape;
         std::swap(shape[0], shape[1]);
       }},
      {"integers", "I32", [&](Tensors& all) { all[matrix].stored.type = StoredType::i32; }},
      {"with and without the prefix", bare(listed[1].name),
       [&](Tensors& all) { all[bare(listed[1].name)] = all[listed[1].name]; }}};
  for (const auto& [what, pin, change] : changes)
    model_.expect_refused(what, {pin}, model_.changed(change));
}

TEST_P(HuggingFace, names_without_the_model_prefix_are_accepted) {
  const auto bare = model_.changed([](Tensors& all) {
    auto old = std::move(all);
    all.clear();
    for (auto& [name, entry] : old) {
      const auto dot = name.find('.');
      const auto start = name.substr(0, dot);
      all[start == "model" || start == "transformer" ? name.substr(dot + 1) : name] = entry;
    }
  });
  EXPECT_EQ(model_.imported(bare), model_.weights.values());
}

TEST_P(HuggingFace, doubles_become_fp32) {
  Tensors expected;
  const auto path = model_.changed([&](Tensors& all) {
    for (auto& [name, entry] : all) {
      auto values = numbers_of(entry);
      for (double& value : values)
        value += 1e-9 * std::abs(value);
      entry = entry_of(StoredType::f64, entry.stored.shape, values);
      expected[name] = entry_of(StoredType::f32, entry.stored.shape, values);
    }
  });
  import_huggingface(path, model_.config, model_.weights.slices);
  export_huggingface(directory_ / "out", model_.config, model_.weights.slices,
                     {.dtype = DType::fp32});
  EXPECT_EQ(read_tensors(directory_ / "out/model.safetensors"), expected);
}

TEST_P(HuggingFace, an_untied_model_without_its_head_names_the_key_to_set) {
  model_.config.tied_head = false;
  model_.expect_refused("no head", {kHead, "\"tie_word_embeddings\": true"},
                        model_.changed([](Tensors& all) { all.erase(kHead); }));
}

std::string family_name(const ::testing::TestParamInfo<Family>& p) {
  return name(p.param);
}
INSTANTIATE_TEST_SUITE_P(all, HuggingFace, ::testing::ValuesIn(kAll), family_name);

// The same models with a tied head; `embedding_` has values that every type holds.
class TiedHead : public HuggingFace {
 protected:
  TiedHead() {
    model_.config.tied_head = true;
    name_ = huggingface_tensors(model_.config)[0].name;
    const auto& entry = model_.tensors.at(name_);
    embedding_ = rounded_to_bf16(numbers_of(entry));
    shape_ = entry.stored.shape;
    model_.tensors.erase(name_);
    model_.tensors.erase(kHead);
  }
  // A directory with these two tensors, or without a tensor that is nullopt.
  fs::path directory_with(const std::optional<Entry>& embedding, const std::optional<Entry>& head) {
    return model_.changed([&](Tensors& all) {
      if (embedding) all[name_] = *embedding;
      if (head) all[kHead] = *head;
    });
  }
  Entry stored_as(StoredType type, const Doubles& values) const {
    return entry_of(type, shape_, values);
  }
  Doubles differing(std::size_t at) const {
    auto head = embedding_;
    head[at] = head[at] == 0.5 ? 0.25 : 0.5;
    return head;
  }

  std::string name_;
  Doubles embedding_;
  std::vector<std::int64_t> shape_;
};

TEST_P(TiedHead, a_copy_of_the_embedding_in_any_type_is_accepted) {
  const auto expected = model_.imported(directory_with(stored_as(StoredType::f32, embedding_), {}));
  EXPECT_EQ(expected.at(name_), embedding_);
  for (const auto type : kFloats)
    for (const auto head : kFloats)
      EXPECT_EQ(
          model_.imported(directory_with(stored_as(type, embedding_), stored_as(head, embedding_))),
          expected)
          << name(type) << " " << name(head);
}

TEST_P(TiedHead, a_head_that_differs_in_one_element_is_an_error_with_the_key_to_set) {
  const auto n = embedding_.size();
  const auto embedding = stored_as(StoredType::f32, embedding_);
  for (const auto type : kFloats)
    for (const auto at : {std::size_t{0}, n / 3, n - 1})
      model_.expect_refused(str("a head in ", name(type), " that differs at ", at),
                            {kHead, name_, str("1 of ", n), "\"tie_word_embeddings\""},
                            directory_with(embedding, stored_as(type, differing(at))));
  const auto rows = shape_[0] + 1;
  model_.expect_refused(
      "a head of another shape", {kHead, str("[", rows)},
      directory_with(embedding, entry_of(StoredType::f32, {rows, shape_[1]},
                                         Doubles(static_cast<std::size_t>(rows * shape_[1])))));
}

TEST_P(TiedHead, ranks_that_hold_parts_compare_all_of_it_together) {
  ModelWeights weights(model_.config);
  const auto columns = weights.columns(), halves = weights.halves();
  for (const auto at : {std::size_t{0}, embedding_.size() - 1}) {
    const auto path = directory_with(stored_as(StoredType::f32, embedding_),
                                     stored_as(StoredType::f32, differing(at)));
    // For each split, only the rank with the element throws.
    for (const auto* all : {&columns, &halves}) {
      int refusals = 0;
      for (const bool first : {true, false}) {
        std::vector<StateSlice> part;
        for (const auto& slice : *all)
          if (slice.name != name_ || (slice.piece.part == 0 && slice.piece.begin == 0) == first)
            part.push_back(slice);
        try {
          import_huggingface(path, model_.config, part);
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
  EXPECT_EQ(model_.imported(directory_with({}, embedding)),
            model_.imported(directory_with(embedding, {})));
  model_.expect_refused("neither embedding nor head", {name_}, directory_with({}, {}));
}

TEST_P(TiedHead, a_head_in_another_shard_is_compared_too) {
  ModelWeights weights(model_.config);
  import_huggingface(directory_with(stored_as(StoredType::f32, embedding_), {}), model_.config,
                     weights.slices);
  const auto out = model_.in_shards(weights);
  const auto add_head = [&](const Doubles& values) {
    write_tensors(out / "head.safetensors", {{kHead, stored_as(StoredType::f32, values)}});
    const fs::path path = out / "model.safetensors.index.json";
    Json index = Json::parse(slurp(path), "index"), map = index.at("weight_map");
    map.set(kHead, "head.safetensors");
    index.set("weight_map", map);
    spit(path, index.dump());
  };
  add_head(embedding_);
  EXPECT_EQ(model_.imported(out), weights.values());
  add_head(differing(embedding_.size() - 1));
  model_.expect_refused("a head that differs in another shard", {"head.safetensors: at byte "},
                        out);
}

INSTANTIATE_TEST_SUITE_P(all, TiedHead, ::testing::ValuesIn(kAll), family_name);

TEST(Buffers, a_causal_mask_is_accepted_and_any_other_is_an_error) {
  const Model gpt2(Family::gpt2);
  const std::int64_t n = 5;
  Doubles mask;
  for (std::int64_t i = 0; i < n * n; ++i)
    mask.push_back(i % n <= i / n ? 1 : 0);
  auto sees_all = mask, sees_less = mask;
  sees_all[n - 1] = 1;
  sees_less.back() = 0;
  const auto with = [&](const char* name, StoredType type, const std::vector<std::int64_t>& shape,
                        const Doubles& values) {
    return gpt2.with(name, entry_of(type, shape, values));
  };
  for (const auto type :
       {StoredType::u8, StoredType::boolean, StoredType::f32, StoredType::bf16, StoredType::f64}) {
    const std::vector<std::int64_t> square{1, 1, n, n};
    EXPECT_NO_THROW(gpt2.imported(with("transformer.h.1.attn.bias", type, square, mask)));
    EXPECT_NO_THROW(gpt2.imported(with("h.0.attn.bias", type, square, mask)));
    gpt2.expect_refused("a mask that sees all", {"h.0.attn.bias is 1", "query 0", "key 4"},
                        with("h.0.attn.bias", type, square, sees_all));
    gpt2.expect_refused("a mask that sees less", {"h.0.attn.bias is 0", "query 4", "key 4"},
                        with("h.0.attn.bias", type, square, sees_less));
    gpt2.expect_refused("a mask of no layer", {"h.2.attn.bias"},
                        with("h.2.attn.bias", type, square, mask));
  }
  gpt2.expect_refused("a flat mask", {"h.0.attn.bias", "[25]"},
                      with("h.0.attn.bias", StoredType::f32, {25}, mask));
  gpt2.expect_refused("a mask that ends in 1", {"h.0.attn.bias", "[5, 5, 1]"},
                      with("h.0.attn.bias", StoredType::f32, {5, 5, 1}, mask));
}

TEST(Buffers, a_masked_score_that_does_not_mask_is_an_error) {
  const Model gpt2(Family::gpt2);
  struct Row {
    const char* refused;  // name of the message; nullptr: it is accepted
    const char* pin;
    StoredType type;
    std::vector<std::int64_t> shape;
    Doubles values;
  };
  const Row rows[] = {
      {nullptr, "", StoredType::f32, {}, {-1e4}},
      {nullptr, "", StoredType::bf16, {}, {-1e4}},
      {nullptr, "", StoredType::f32, {}, {-HUGE_VAL}},
      {"a score near 0", "-1;", StoredType::f32, {}, {-1}},
      {"a score that is NaN", "nan", StoredType::f32, {}, {NAN}},
      {"two scores", "[2]", StoredType::f32, {2}, {-1e4, -1e4}},
      {"no score", "[0]", StoredType::f32, {0}, {}},
  };
  for (const auto& [refused, pin, type, shape, values] : rows) {
    const auto path = gpt2.with("h.0.attn.masked_bias", entry_of(type, shape, values));
    if (refused == nullptr)
      EXPECT_NO_THROW(gpt2.imported(path));
    else
      gpt2.expect_refused(refused, {"masked_bias", pin}, path);
  }
}

TEST(Buffers, frequencies_of_another_rope_are_an_error) {
  for (const auto family : {Family::llama3, Family::qwen2, Family::qwen3, Family::smollm3}) {
    const Model model(family);
    const auto& c = model.config;
    const auto frequencies = [&](StoredType type, float theta) {
      Doubles all;
      for (std::int64_t i = 0; i < c.head_size / 2; ++i)
        all.push_back(
            static_cast<double>(inverse_frequency(i, c.head_size, theta, c.rope_scaling)));
      return entry_of(type, {c.head_size / 2}, all);
    };
    const std::string buffer = "model.rotary_emb.inv_freq";
    for (const auto type : kFloats) {
      for (const auto& name : {std::string("model.layers.0.self_attn.rotary_emb.inv_freq"),
                               std::string("layers.1.self_attn.rotary_emb.inv_freq"), buffer}) {
        EXPECT_NO_THROW(model.imported(model.with(name, frequencies(type, c.rope_theta))));
        model.expect_refused(
            str("frequencies of another theta in ", lockstep::name(type), " of ", name),
            {name, str(c.rope_theta)}, model.with(name, frequencies(type, 2 * c.rope_theta)));
      }
      model.expect_refused(
          "frequencies of no layer", {"layers.99."},
          model.with("layers.99.self_attn.rotary_emb.inv_freq", frequencies(type, c.rope_theta)));
    }
    model.expect_refused("one frequency", {buffer, "[1]"},
                         model.with(buffer, entry_of(StoredType::f32, {1}, {1.0})));
    model.expect_refused(
        "frequencies in five dimensions", {buffer, "[1, 1, 2, 1, 1]"},
        model.with(buffer, entry_of(StoredType::f32, {1, 1, 2, 1, 1}, {1.0, 1.0})));
  }
}

TEST(HuggingFaceFiles, names_of_wrapped_quantised_and_adapted_models_are_explained) {
  const Model qwen3(Family::qwen3);
  for (const std::string name :
       {"_orig_mod.model.norm.weight", "model.layers.0._orig_mod.mlp.up_proj.weight",
        "module.model.norm.weight", "model.layers.0._fsdp_wrapped_module.mlp.up_proj.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.q_proj.qweight",
        "model.layers.0.self_attn.q_proj.weight_scale_inv",
        "model.layers.0.self_attn.q_proj.weight.absmax"})
    qwen3.expect_refused(name, {name + ": "}, qwen3.with(name, qwen3.tensors.begin()->second));
}

TEST(HuggingFaceFiles, fused_and_transposed_matrices_of_gpt2_are_split) {
  const Model gpt2(Family::gpt2);
  const auto values = gpt2.weights.values();
  const std::string c_attn = "transformer.h.1.attn.c_attn";
  const auto fused = numbers_of(gpt2.tensors.at(c_attn + ".weight"));  // [D, 3 D]
  const auto bias = numbers_of(gpt2.tensors.at(c_attn + ".bias"));
  const auto D = static_cast<std::size_t>(gpt2.config.width);
  const char* parts[] = {".q", ".k", ".v"};
  for (std::size_t part = 0; part < 3; ++part)
    for (std::size_t output = 0; output < D; ++output) {
      const auto column = part * D + output;
      EXPECT_EQ(values.at(c_attn + parts[part] + ".bias")[output], bias[column]);
      for (std::size_t input = 0; input < D; ++input)
        ASSERT_EQ(values.at(c_attn + parts[part] + ".weight")[output * D + input],
                  fused[input * 3 * D + column]);
    }
}

// More inputs than one transposed block has, and more elements than one read or write.
TEST(HuggingFaceFiles, a_model_larger_than_the_buffers_reads_back_as_exported) {
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

// In a separate process, whose peak memory no other test has raised.
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

TEST(HuggingFaceFiles, a_directory_without_weights_or_a_tokenizer_is_an_error_with_a_remedy) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(is_huggingface_directory(directory.path()));
  expect_refusal<DataError>(kReader, "no config.json", {"config.json: "},
                            [&] { huggingface_config(directory.path()); });
  fs::copy(fixture(Family::llama3) / "config.json", directory / "config.json");
  spit(directory / "pytorch_model.bin", "x");
  EXPECT_TRUE(is_huggingface_directory(directory.path()));
  const auto config = huggingface_config(directory.path());
  ModelWeights weights(config);
  expect_refusal<DataError>(kReader, "other weights", {"save_pretrained()"},
                            [&] { import_huggingface(directory.path(), config, weights.slices); });
  for (const auto& from : {directory.path(), directory / "nowhere"})
    expect_refusal<DataError>(kReader, str("no tokenizer in ", from.string()), {from.string()},
                              [&] { copy_tokenizer(from, directory.path()); });
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
      {R"("sliding_window": -Infinity,)", R"("-Infinity")"},
      {R"("rope_scaling": {"type": "llama3", "factor": NaN},)", R"("NaN")"},
      {R"("rope_scaling": {"type": "llama3", "original_max_position_embeddings": Infinity},)",
       R"("Infinity")"}};
  for (const auto& [member, pin] : refused)
    expect_refusal<DataError>(kReader, member, {"config.json: ", pin},
                              [&, m = member] { read_with(m); });
}

TEST(HuggingFaceFiles, an_export_copies_tokenizer_files_and_overwrites_nothing) {
  const Model qwen2(Family::qwen2);
  const auto& directory = qwen2.directory;
  fs::create_directory(directory / "from");
  const std::string odd = std::string("{\"a\":\r\n \xff") + '\0' + "}";
  for (const char* name : {"tokenizer.json", "merges.txt", "config.json", "model.safetensors"})
    spit(directory / "from" / name, odd);
  const auto write = [&] {
    export_huggingface(directory / "out", qwen2.config, qwen2.weights.slices,
                       {.tokenizer_from = directory / "from"});
  };
  write();
  EXPECT_EQ(slurp(directory / "out/tokenizer.json"), odd);
  EXPECT_EQ(slurp(directory / "out/merges.txt"), odd);
  EXPECT_EQ(huggingface_config(directory / "out"), qwen2.config);
  const Json json = Json::parse(slurp(directory / "out/config.json"), "config");
  EXPECT_EQ(json.at("torch_dtype").as_string(), "bfloat16");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory / "out"), {}), 4);
  expect_refusal<UsageError>(kReader, "a directory that is not empty", {"out"}, write);
}

TEST(HuggingFaceFiles, a_failed_export_does_not_look_like_a_model) {
  const SmallDisk disk(std::int64_t{40} << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  const Model llama3(Family::llama3);
  EXPECT_THROW(export_huggingface(disk.path() / "out", llama3.config, llama3.weights.slices,
                                  {.dtype = DType::fp32, .shard_bytes = 9000}),
               DataError);
  EXPECT_FALSE(is_huggingface_directory(disk.path() / "out"));
}

}  // namespace lockstep::testing::huggingface_test
