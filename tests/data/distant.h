// A dataset of small shards in a directory that a BadServer serves.
#pragma once

#include <functional>

#include "data/remote/shard_server.h"
#include "tests/data/bad_server.h"
#include "tests/data/shards.h"

namespace lockstep::testing {

// Shard i is "i.bin", of 100 + i tokens that are all i, in one document.
inline Manifest write_numbered_shards(const std::filesystem::path& directory, int shards) {
  Manifest manifest;
  manifest.format = {"bytes", kShardHeaderBytes, 2, 257, Boundary::listed, -1};
  manifest.tokenizer_hash = ByteTokenizer().about().hash;
  for (int i = 0; i < shards; ++i) {
    const auto name = str(i, ".bin");
    const auto text = gpt2_shard(Tokens(static_cast<std::size_t>(100 + i), i));
    std::string ends;
    append(ends, static_cast<std::uint64_t>(100 + i), 8);
    spit(directory / name, text);
    spit(directory / ends_name(name), ends);
    manifest.shards.push_back({name, 100 + i, 1, hash_hex(text), hash_hex(ends), ""});
  }
  spit(directory / kManifestName, manifest.dump());
  return manifest;
}

// A process that serves shards to others of this machine, as the first rank does.
class ServerProcess {
 public:
  explicit ServerProcess(const std::function<HostShards()>& make_files) {
    std::array<int, 2> ends{};
    LOCKSTEP_CHECK(pipe(ends.data()) == 0, "no pipe");
    const Descriptor from_child(ends[0]);
    Descriptor to_parent(ends[1]);
    pid_ = fork();
    LOCKSTEP_CHECK(pid_ >= 0, "cannot fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        auto files = make_files();
        ShardServer server(files);
        if (write(ends[1], server.name().c_str(), server.name().size() + 1) > 0) pause();
      } catch (...) {  // the parent reads nothing
      }
      _exit(1);
    }
    close(to_parent.release());
    std::array<char, 200> name{};
    LOCKSTEP_CHECK(read(ends[0], name.data(), name.size()) > 0, "the server did not start");
    name_ = name.data();
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess() { end(); }

  const std::string& name() const { return name_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  std::string name_;
};

}  // namespace lockstep::testing
