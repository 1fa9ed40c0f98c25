#include "io/shared_catalogue.hpp"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

namespace moonpool {
namespace {

std::uint64_t bytes_for(std::uint64_t object_count) {
  return catalogue_word_count(object_count) * sizeof(std::uint64_t);
}

}  // namespace

SharedCatalogue::SharedCatalogue(const std::string& label, std::uint64_t object_count, std::uint64_t tenant_id)
    : tenant_id_(tenant_id), catalogue_({}) {
  const Descriptor file = make_memory_file("moonpool-catalogue-" + label, bytes_for(object_count));
  file_for_reading_ = reopen_for_reading(file);
  mapping_ = std::make_unique<Mapping>(file, bytes_for(object_count), Mapping::Access::write);
  catalogue_ = Catalogue(mapping_->mutable_words());
}

void SharedCatalogue::apply(std::span<const Residency> residencies) {
  for (const Residency& residency : residencies) {
    if (residency.tenant_id != tenant_id_ || residency.expires) { continue; }
    if (residency.visible) {
      (void)catalogue_.add({residency.digest, residency.generation, residency.extent, residency.checksum});
    } else {
      catalogue_.remove(residency.digest, residency.generation);
    }
  }
}

Descriptor SharedCatalogue::lend() const {
  Descriptor copy(::fcntl(file_for_reading_.number(), F_DUPFD_CLOEXEC, 0));
  if (!copy.open()) { throw std::system_error(errno, std::generic_category(), "cannot lend the catalogue"); }
  return copy;
}

std::optional<CatalogueEntry> look_up(const Mapping& mapping, const Digest& digest) {
  return find_in_catalogue(mapping.words(), digest);
}

}  // namespace moonpool
