// One end of the socket between the ranks of a host answers or rejects any message of the other
// end. The first byte of the input chooses the sender. If it is the client, each line of the rest
// is a request: it has one answer, and a descriptor only for an existing path. If it is the server,
// the lines are answers, with a file if a line ends in 'D': the client accepts a file with a
// descriptor, or throws.
#include <algorithm>
#include <array>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include "data/remote/shard_server.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::shard_server_fuzz {
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    if (!line.empty()) lines.emplace_back(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

struct Address {
  explicit Address(const std::string& name) {
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&to); }
  sockaddr_un to{};
  socklen_t bytes = 0;
};

// Sends one packet, with or without a descriptor.
void send_packet(int socket, std::string text, int descriptor) {
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  (void)sendmsg(socket, &message, MSG_NOSIGNAL);
}

void ask(const std::vector<std::string>& requests) {
  static HostShards files({}, {});
  static ShardServer server(files);
  const Address address(server.name());
  const Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  LOCKSTEP_CHECK(connect(made.number(), address.get(), address.bytes) == 0, "no answer");
  for (const auto& request : requests) {
    if (request.find(":/") != std::string::npos) continue;  // would use the network
    send_packet(made.number(), request, -1);
    std::array<char, 4096> answer{};
    const auto bytes = recv(made.number(), answer.data(), answer.size(), 0);
    LOCKSTEP_CHECK(bytes > 0, "no answer to ", request);
    LOCKSTEP_CHECK(std::string_view("fexu").find(answer[0]) != std::string_view::npos,
                   "an answer of kind ", answer[0]);
    std::error_code unknown;
    if (answer[0] == 'f')
      LOCKSTEP_CHECK(bytes == 1 && std::filesystem::exists(request.c_str(), unknown), "a file for ",
                     request);
  }
}

// Liar is a server that sends `answers` to every client.
class Liar {
 public:
  Liar()
      : name_(str("lockstep-fuzz-", getpid())),
        listening_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const Address address(name_);
    LOCKSTEP_CHECK(bind(listening_.number(), address.get(), address.bytes) == 0 &&
                       listen(listening_.number(), 8) == 0,
                   "no socket");
  }
  const std::string& name() const { return name_; }
  void answer(const std::vector<std::string>& answers) const {
    const Descriptor peer(accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    for (const auto& text : answers)
      send_packet(peer.number(), text, text.back() == 'D' ? listening_.number() : -1);
  }

 private:
  std::string name_;
  Descriptor listening_;
};

// The answers are in the socket before the client reads them.
void lie(const std::vector<std::string>& answers) {
  static const Liar liar;
  ShardClient client(liar.name());
  liar.answer(answers);
  bool has_file = false;  // in the first answer that does not ask the client to wait
  char kind = 0;
  for (const auto& answer : answers) {
    if (answer.front() == 'w') continue;
    kind = answer.front();
    has_file = answer.back() == 'D';
    break;
  }
  try {
    const auto file = client.open("path");
    LOCKSTEP_CHECK(has_file && kind != 'e' && kind != 'x' && kind != 'u', "a file of nothing");
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    LOCKSTEP_FAIL(error.what());
  }
}

void check(std::string_view text) {
  if (text.empty()) return;
  const auto lines = lines_of(text.substr(1));
  if (text.front() == 'c')
    ask(lines);
  else
    lie(lines);
}

Seeds seeds() {
  return {"c/etc/hostname\nno/such.bin\n/etc", "sfD",  "sw\nw\nfD\n", "seno such file", "sx..\nw",
          "suthe server cannot be reached",    "sw\nf"};
}

const Target target("shard_server", seeds, check);

}  // namespace lockstep::fuzz::shard_server_fuzz
