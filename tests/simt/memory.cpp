#include "tests/simt/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <link.h>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace simt {

template <class T>
ZeroPages<T>::ZeroPages(std::size_t count) : bytes_(std::max<std::size_t>(count, 1) * sizeof(T)) {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error("simt: no addresses for shadow memory");
  data_ = static_cast<T*>(p);
}

template <class T>
ZeroPages<T>::~ZeroPages() {
  munmap(data_, bytes_);
}

template class ZeroPages<Cell>;

Region::Region(std::byte* begin, std::size_t bytes, bool is_shared)
    : begin_(begin), bytes_(bytes), is_shared_(is_shared), cells_(bytes) {}

void Region::remove_tensors(const std::byte* begin, std::size_t bytes) {
  tensors_.erase(tensors_.lower_bound(begin), tensors_.lower_bound(begin + bytes));
  found_ = {};
}

bool Region::is_in_tensor(const void* address, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  if (at >= found_.first && at + bytes <= found_.second) return true;
  const auto next = tensors_.upper_bound(at);
  if (next == tensors_.begin() || at + bytes > std::prev(next)->second) return false;
  found_ = *std::prev(next);
  return true;
}

std::string Region::place_of(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  const auto next = tensors_.upper_bound(at);
  std::ostringstream out;
  if (next != tensors_.begin()) {
    const auto& [begin, end] = *std::prev(next);
    if (at < end)
      out << "the last of them behind the end of a tensor";
    else
      out << at - end << " bytes behind the end of a tensor";
  }
  if (next != tensors_.begin() && next != tensors_.end()) out << ", ";
  if (next != tensors_.end()) out << next->first - at << " before the begin of another";
  if (tensors_.empty()) out << "in memory that holds no tensor";
  return out.str();
}

std::vector<Variable> thread_local_variables() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string elf((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto read = [&]<class T>(T value, std::size_t at) {
    if (at + sizeof value > elf.size()) throw std::runtime_error("simt: cannot read this program");
    std::memcpy(&value, elf.data() + at, sizeof value);
    return value;
  };
  std::vector<Variable> found;
  const auto header = read(Elf64_Ehdr{}, 0);
  for (std::size_t s = 0; s < header.e_shnum; ++s) {
    const auto section = read(Elf64_Shdr{}, header.e_shoff + s * header.e_shentsize);
    if (section.sh_type != SHT_SYMTAB) continue;
    for (std::size_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
      const auto symbol = read(Elf64_Sym{}, section.sh_offset + i * sizeof(Elf64_Sym));
      if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS && symbol.st_size > 0)
        found.push_back({symbol.st_value, symbol.st_size});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Variable& a, const Variable& b) { return a.offset < b.offset; });
  return found;
}

TlsBlock tls_block() {
  TlsBlock block;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        auto& b = *static_cast<TlsBlock*>(result);
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data != nullptr)
            b = {static_cast<std::byte*>(info->dlpi_tls_data), info->dlpi_phdr[i].p_memsz};
        return 1;  // the program itself comes first
      },
      &block);
  return block;
}

std::string source_line(const void* return_address) {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
        return 1;
      },
      &base);
  std::ostringstream command;
  command << "addr2line -C -e /proc/" << getpid() << "/exe 0x" << std::hex
          << reinterpret_cast<std::uintptr_t>(return_address) - base - 1 << " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.str().c_str(), "r"), pclose);
  char line[512] = "";
  if (!pipe || std::fgets(line, sizeof line, pipe.get()) == nullptr) return "?";
  std::string text(line);
  text.erase(std::min(text.find_first_of("\n("), text.size()));
  if (const auto slash = text.rfind('/'); slash != std::string::npos) text.erase(0, slash + 1);
  return text;
}

}  // namespace simt
