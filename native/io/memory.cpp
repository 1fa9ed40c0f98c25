#include "io/memory.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace moonpool {
namespace {

constexpr int madvise_populate_read = 22;
constexpr int madvise_populate_write = 23;
constexpr std::uint64_t page_bytes = 4096;

std::atomic<std::uint64_t>& forks() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

void* as_pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));  // NOLINT: this is what the file is for
}

// Kernels before 5.14 cannot populate on request: touch every page instead.
void touch_pages(std::byte* from, std::uint64_t length, bool write) {
  for (std::uint64_t offset = 0; offset < length; offset += page_bytes) {
    std::atomic_ref<std::byte> cell(from[offset]);
    if (write) {
      cell.store(cell.load(std::memory_order_relaxed), std::memory_order_relaxed);
    } else {
      (void)cell.load(std::memory_order_relaxed);
    }
  }
}

}  // namespace

std::uint64_t fork_count() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks().fetch_add(1); });
  (void)registered;
  return forks().load(std::memory_order_relaxed);
}

void check_piece(const Piece& piece) {
  if (piece.address == 0) { throw std::invalid_argument("a piece has a null address"); }
  if (piece.length == 0) { throw std::invalid_argument("a piece is empty"); }
  if (piece.length > std::numeric_limits<std::uint64_t>::max() - piece.address) {
    throw std::invalid_argument("a piece reaches past the end of the address space");
  }
}

ConstBytes readable(const Piece& piece) {
  return {static_cast<const std::byte*>(as_pointer(piece.address)), static_cast<std::size_t>(piece.length)};
}

MutableBytes writable(const Piece& piece) {
  return {static_cast<std::byte*>(as_pointer(piece.address)), static_cast<std::size_t>(piece.length)};
}

std::uint64_t address_of(ConstBytes bytes) { return reinterpret_cast<std::uintptr_t>(bytes.data()); }

Mapping::Mapping(const Descriptor& file, std::uint64_t byte_count, Access access)
    : byte_count_(byte_count), access_(access), fork_count_(fork_count()) {
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  start_ = ::mmap(nullptr, byte_count, protection, MAP_SHARED, file.number(), 0);
  if (start_ == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot map " + std::to_string(byte_count) + " bytes of the segment");
  }
  ::madvise(start_, byte_count, MADV_DONTFORK);
  ::madvise(start_, byte_count, MADV_HUGEPAGE);  // advice only: where the system offers none, nothing changes
}

Mapping::~Mapping() {
  if (fork_count_ == fork_count()) {  // in a child there is nothing of ours at this address
    ::munmap(start_, byte_count_);
  }
}

ConstBytes Mapping::bytes(std::uint64_t offset, std::uint64_t length) const {
  if (offset > byte_count_ || length > byte_count_ - offset) {
    throw std::out_of_range("a range reaches past its arena");
  }
  return ConstBytes(static_cast<const std::byte*>(start_), byte_count_).subspan(offset, length);
}

MutableBytes Mapping::mutable_bytes(std::uint64_t offset, std::uint64_t length) {
  if (offset > byte_count_ || length > byte_count_ - offset) {
    throw std::out_of_range("a range reaches past its arena");
  }
  return MutableBytes(static_cast<std::byte*>(start_), byte_count_).subspan(offset, length);
}

std::span<const std::uint64_t> Mapping::words() const {
  return {static_cast<const std::uint64_t*>(start_), byte_count_ / sizeof(std::uint64_t)};
}

std::span<std::uint64_t> Mapping::mutable_words() {
  return {static_cast<std::uint64_t*>(start_), byte_count_ / sizeof(std::uint64_t)};
}

void Mapping::store_u64(std::uint64_t offset, std::uint64_t value) {
  auto* cell = reinterpret_cast<std::uint64_t*>(mutable_bytes(offset, sizeof value).data());
  std::atomic_ref<std::uint64_t>(*cell).store(value, std::memory_order_seq_cst);
}

std::uint64_t Mapping::load_u64(std::uint64_t offset) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::byte* cell = bytes(offset, sizeof(std::uint64_t)).data();
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(cell), __ATOMIC_SEQ_CST);
}

bool Mapping::populate(std::uint64_t offset, std::uint64_t length) const {
  std::byte* from = static_cast<std::byte*>(start_) + offset;
  const bool write = access_ == Access::write;
  if (::madvise(from, length, write ? madvise_populate_write : madvise_populate_read) == 0) { return true; }
  if (errno != EINVAL) { return false; }
  touch_pages(from, length, write);
  return true;
}

Descriptor make_memory_file(const std::string& label, std::uint64_t byte_count) {
  Descriptor file(::memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.open()) { throw std::system_error(errno, std::generic_category(), "cannot create a memory file"); }
  if (::ftruncate(file.number(), static_cast<off_t>(byte_count)) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot size a memory file to " + std::to_string(byte_count) + " bytes");
  }
  if (::fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot seal a memory file");
  }
  return file;
}

Descriptor reopen_for_reading(const Descriptor& file) {
  const std::string path = "/proc/self/fd/" + std::to_string(file.number());
  Descriptor again(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!again.open()) {
    throw std::system_error(errno, std::generic_category(), "cannot open a memory file for reading");
  }
  return again;
}

}  // namespace moonpool
