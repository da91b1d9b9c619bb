#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr int kVersion = 2;  // with an epoch; 1: without
constexpr std::string_view kFormat = "lockstep checkpoint";
constexpr std::size_t kHashDigits = 32;
constexpr std::string_view kAbout = ",\n\"about\": ";  // follows the first members
constexpr std::string_view kTailBegin = "\"xxh3_128\": \"", kTailEnd = "\"\n}\n";
constexpr std::array kDTypes = {DType::fp32,     DType::bf16,  DType::fp8_e4m3,
                                DType::fp8_e5m2, DType::int32, DType::uint8};

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(what);
}

DType dtype_of_name(const std::string& text) {
  for (const auto dtype : kDTypes)
    if (text == name(stored_type(dtype))) return dtype;
  refuse(str("unknown dtype \"", text, "\""));
}

ManifestFile parse_file(const Json& json) {
  ManifestFile file;
  file.name = json.at("name").as_string();
  if (std::filesystem::path(file.name).filename() != file.name || file.name == ".." ||
      file.name == "." || file.name.empty())
    refuse(str("file name \"", file.name, "\": expected a name without a directory"));
  file.bytes = integer_at(json, "bytes", 0, INT64_MAX);
  file.header_bytes = integer_at(json, "header_bytes", 0, file.bytes);
  file.header_hash = hash_at(json, "header_xxh3_128");
  return file;
}

Shape parse_shape(const Json& json) {
  const auto& sizes = json.as_array();
  if (sizes.empty() || sizes.size() > Shape::kMaxRank)
    refuse(str("expected 1 to ", Shape::kMaxRank, " dimensions, found ", sizes.size()));
  Shape shape;
  std::int64_t bytes = 8;
  for (const auto& size : sizes) {
    const std::int64_t n = size.as_integer();
    if (n < 1 || __builtin_mul_overflow(bytes, n, &bytes))
      refuse(str("invalid dimension size ", n));
    shape.size[static_cast<std::size_t>(shape.rank++)] = n;
  }
  return shape;
}

Split parse_split(const Json& json, const Shape& shape) {
  Split split;
  split.dim = static_cast<int>(integer_at(json, "dim", 0, shape.rank - 1));
  const std::int64_t size = shape[split.dim];
  split.parts =
      static_cast<int>(integer_at(json, "parts", 1, std::min<std::int64_t>(size, 1 << 30)));
  split.step = integer_at(json, "step", (size + split.parts - 1) / split.parts, size);
  if (std::int64_t end = 0; __builtin_mul_overflow(split.step, split.parts, &end))
    refuse(str(split.parts, " parts of size ", split.step, " overflow 64 bits"));
  return split;
}

ManifestSlice parse_slice(const Json& json, const ManifestTensor& tensor,
                          const std::vector<ManifestFile>& files) {
  ManifestSlice slice;
  slice.piece.part = static_cast<int>(integer_at(json, "part", 0, tensor.split.parts - 1));
  const std::int64_t elements = part_elements(tensor.shape, tensor.split, slice.piece.part);
  slice.piece.begin = integer_at(json, "begin", 0, elements);
  slice.piece.end = integer_at(json, "end", slice.piece.begin + 1, elements);
  slice.file = static_cast<int>(integer_at(json, "file", 0, std::ssize(files) - 1));
  const auto& file = files[static_cast<std::size_t>(slice.file)];
  slice.offset = integer_at(json, "offset", file.header_bytes, file.bytes);
  slice.hash = hash_at(json, "xxh3_128");
  if (tensor.slice_bytes(slice) > file.bytes - slice.offset)
    refuse(str("a slice at byte ", slice.offset, " extends past the end of ", file.name));
  return slice;
}

void check_every_element_once(const ManifestTensor& tensor) {
  auto slices = tensor.slices;
  std::sort(slices.begin(), slices.end(), [](const ManifestSlice& a, const ManifestSlice& b) {
    return a.piece.part != b.piece.part ? a.piece.part < b.piece.part
                                        : a.piece.begin < b.piece.begin;
  });
  auto slice = slices.begin();
  for (int part = 0; part < tensor.split.parts; ++part) {
    std::int64_t end = 0;
    for (; slice != slices.end() && slice->piece.part == part; ++slice) {
      if (slice->piece.begin != end)
        refuse(str("part ", part, ": a slice starts at element ", slice->piece.begin, ", expected ",
                   end));
      end = slice->piece.end;
    }
    const std::int64_t elements = part_elements(tensor.shape, tensor.split, part);
    if (end != elements)
      refuse(str("part ", part, ": slices end at element ", end, ", expected ", elements));
  }
}

ManifestTensor parse_tensor(const Json& json, const std::vector<ManifestFile>& files) {
  ManifestTensor tensor;
  tensor.name = json.at("name").as_string();
  const auto read = [&] {
    tensor.shape = parse_shape(json.at("shape"));
    tensor.dtype = dtype_of_name(json.at("dtype").as_string());
    tensor.split = parse_split(json, tensor.shape);
    for (const auto& slice : json.at("slices").as_array())
      tensor.slices.push_back(parse_slice(slice, tensor, files));
  };
  in_context(read, tensor.name);
  return tensor;
}

void check_every_byte_once(const CheckpointManifest& manifest) {
  struct Extent {
    int file;
    std::int64_t begin, end;
  };
  std::vector<Extent> extents;
  for (const auto& tensor : manifest.tensors)
    for (const auto& slice : tensor.slices)
      extents.push_back({slice.file, slice.offset, slice.offset + tensor.slice_bytes(slice)});
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.file != b.file ? a.file < b.file : a.begin < b.begin;
  });
  auto extent = extents.begin();
  for (int f = 0; f < static_cast<int>(manifest.files.size()); ++f) {
    const auto& file = manifest.files[static_cast<std::size_t>(f)];
    std::int64_t end = file.header_bytes;
    for (; extent != extents.end() && extent->file == f; ++extent) {
      if (extent->begin != end)
        refuse(str(file.name, ": a slice starts at byte ", extent->begin, ", expected ", end));
      end = extent->end;
    }
    if (end != file.bytes)
      refuse(str(file.name, ": slices end at byte ", end, ", expected ", file.bytes));
  }
}

void check_names(const CheckpointManifest& manifest) {
  std::unordered_set<std::string_view> names;
  for (const auto& tensor : manifest.tensors)
    if (!names.insert(tensor.name).second)
      refuse(str("the tensor ", tensor.name, " appears twice"));
  names.clear();
  for (const auto& file : manifest.files)
    if (!names.insert(file.name).second) refuse(str("the file ", file.name, " appears twice"));
}

void check_hash(std::string_view text) {
  const std::size_t tail = kTailBegin.size() + kHashDigits + kTailEnd.size();
  if (text.size() < tail) refuse(str("expected a manifest, found ", text.size(), " bytes"));
  const auto body = text.substr(0, text.size() - tail);
  const std::string expected = str(kTailBegin, hash_hex(body), kTailEnd);
  if (text.substr(body.size()) != expected)
    refuse(str("expected the hash ", expected.substr(kTailBegin.size(), kHashDigits),
               " at the end; the manifest is damaged or truncated"));
}

Json to_json(const ManifestFile& file) {
  return Json::Object{{"name", file.name},
                      {"bytes", file.bytes},
                      {"header_bytes", file.header_bytes},
                      {"header_xxh3_128", file.header_hash}};
}

Json to_json(const ManifestTensor& tensor) {
  Json::Array shape, slices;
  for (int i = 0; i < tensor.shape.rank; ++i)
    shape.emplace_back(tensor.shape[i]);
  for (const auto& slice : tensor.slices)
    slices.emplace_back(Json::Object{{"part", slice.piece.part},
                                     {"begin", slice.piece.begin},
                                     {"end", slice.piece.end},
                                     {"file", slice.file},
                                     {"offset", slice.offset},
                                     {"xxh3_128", slice.hash}});
  return Json::Object{{"name", tensor.name},
                      {"shape", std::move(shape)},
                      {"dtype", name(stored_type(tensor.dtype))},
                      {"dim", tensor.split.dim},
                      {"parts", tensor.split.parts},
                      {"step", tensor.split.step},
                      {"slices", std::move(slices)}};
}

// One element per line.
template <class T>
std::string dump_lines(const std::vector<T>& all) {
  std::string text = "[\n";
  for (const auto& element : all)
    text += to_json(element).dump() + (&element == &all.back() ? "\n" : ",\n");
  return text + "]";
}

}  // namespace

CheckpointManifest CheckpointManifest::parse(std::string_view text, const std::string& what) {
  CheckpointManifest manifest;
  const auto read = [&] {
    check_hash(text);
    const Json json = Json::parse(text, "not JSON");
    const std::string& format = json.at("format").as_string();
    if (format != kFormat) refuse(str("format is \"", format, "\", expected \"", kFormat, "\""));
    const bool has_epoch = integer_at(json, "version", 1, kVersion) > 1;
    manifest.step = integer_at(json, "step", 0, INT64_MAX);
    if (has_epoch) manifest.epoch = integer_at(json, "epoch", 1, INT64_MAX);
    manifest.about = json.at("about");
    for (const auto& file : json.at("files").as_array())
      manifest.files.push_back(parse_file(file));
    for (const auto& tensor : json.at("tensors").as_array())
      manifest.tensors.push_back(parse_tensor(tensor, manifest.files));
    for (const auto& tensor : manifest.tensors)
      in_context([&] { check_every_element_once(tensor); }, tensor.name);
    check_names(manifest);
    check_every_byte_once(manifest);
  };
  in_context(read, what);
  return manifest;
}

std::string CheckpointManifest::dump() const {
  std::string text =
      str("{\n\"format\": ", Json(std::string(kFormat)).dump(),
          ",\n\"version\": ", epoch > 0 ? kVersion : 1, ",\n\"step\": ", step,
          epoch > 0 ? str(",\n\"epoch\": ", epoch) : "", kAbout, about.dump(2),
          ",\n\"files\": ", dump_lines(files), ",\n\"tensors\": ", dump_lines(tensors), ",\n");
  const std::string hash = hash_hex(text);
  text += str(kTailBegin, hash, kTailEnd);
  LOCKSTEP_CHECK(static_cast<std::int64_t>(text.size()) <= kMostManifestBytes, "the manifest has ",
                 text.size(), " bytes, expected at most ", kMostManifestBytes);
  return text;
}

std::string CheckpointManifest::dump_part() const {
  return str("{\"files\": ", dump_lines(files), ", \"tensors\": ", dump_lines(tensors), "}");
}

void CheckpointManifest::add_part(std::string_view text, const std::string& what, Index& index) {
  const auto read = [&] {
    const Json json = Json::parse(text, "not JSON");
    std::vector<ManifestFile> part_files;
    std::vector<int> places;  // indices in `files`; ranks that wrote one file together all name it
    for (const auto& file : json.at("files").as_array()) {
      const auto& added = part_files.emplace_back(parse_file(file));
      const auto [entry, is_new] = index.files.emplace(added.name, files.size());
      places.push_back(static_cast<int>(entry->second));
      if (is_new) files.push_back(added);
      const auto& known = files[entry->second];
      if (known.bytes != added.bytes || known.header_hash != added.header_hash)
        refuse(str(added.name, ": the size or header differs between ranks"));
    }
    for (const auto& part : json.at("tensors").as_array()) {
      auto tensor = parse_tensor(part, part_files);
      for (auto& slice : tensor.slices)
        slice.file = places[static_cast<std::size_t>(slice.file)];
      const auto [entry, is_new] = index.tensors.emplace(tensor.name, tensors.size());
      if (is_new) {
        tensors.push_back(std::move(tensor));
        continue;
      }
      auto& whole = tensors[entry->second];
      if (whole.shape != tensor.shape || whole.dtype != tensor.dtype || whole.split != tensor.split)
        refuse(str(tensor.name, ": the shape, type or split differs between ranks"));
      whole.slices.insert(whole.slices.end(), tensor.slices.begin(), tensor.slices.end());
    }
  };
  in_context(read, what);
}

std::optional<ManifestId> manifest_id_in(std::string_view text) {
  const auto head = text.substr(0, text.find(kAbout));
  const auto tail = text.substr(text.size() - std::min(text.size(), kHashDigits + kTailEnd.size()));
  const auto hash = tail.substr(0, kHashDigits);
  if (head.size() == text.size() || !tail.ends_with(kTailEnd) ||
      hash.find_first_not_of("0123456789abcdef") != hash.npos)
    return std::nullopt;
  try {
    const Json json = Json::parse(str(head, "}"), "not JSON");
    return ManifestId{.epoch = json.find("epoch") == nullptr ? 0 : json.at("epoch").as_integer(),
                      .hash = std::string(hash)};
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::optional<ManifestId> manifest_id(const std::filesystem::path& checkpoint) {
  constexpr std::int64_t kMostHead = 256, kMostTail = 64;
  try {
    const ReadFile file(checkpoint / kCheckpointManifestName);
    const auto head = std::min(file.size_bytes(), kMostHead);
    const auto tail = std::min(file.size_bytes() - head, kMostTail);
    std::string text(static_cast<std::size_t>(head + tail), '\0');
    const auto bytes = std::as_writable_bytes(std::span(text));
    file.read(bytes.first(static_cast<std::size_t>(head)), 0);
    file.read(bytes.subspan(static_cast<std::size_t>(head)), file.size_bytes() - tail);
    return manifest_id_in(text);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

CheckpointManifest read_manifest(const std::filesystem::path& checkpoint) {
  const auto path = checkpoint / kCheckpointManifestName;
  return CheckpointManifest::parse(read_text(path, kMostManifestBytes), path.string());
}

}  // namespace lockstep
