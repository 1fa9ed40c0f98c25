// The node's catalogue in a memory file that readers of its segment map (see core/catalogue.hpp).
#pragma once

#include <memory>

#include "core/catalogue.hpp"
#include "core/object_table.hpp"
#include "io/memory.hpp"

namespace moonpool {

class SharedCatalogue {
 public:
  // Lists objects of one tenant, whose trust domain the segment is. Throws std::system_error.
  SharedCatalogue(const std::string& label, std::uint64_t object_count, std::uint64_t tenant_id);
  // What expires is not listed: whether it is over is for the node's clock to say.
  void apply(std::span<const Residency> residencies);
  [[nodiscard]] std::uint64_t byte_count() const { return mapping_->byte_count(); }
  [[nodiscard]] std::uint64_t entry_count() const { return catalogue_.entry_count(); }
  [[nodiscard]] std::uint64_t unlisted_count() const { return catalogue_.unlisted_count(); }
  // A descriptor for reading to give away. Throws std::system_error.
  [[nodiscard]] Descriptor lend() const;

 private:
  std::uint64_t tenant_id_;
  Descriptor file_for_reading_;
  std::unique_ptr<Mapping> mapping_;
  Catalogue catalogue_;
};

// Where a reader's mapping says that the value of that digest lies: a hint, see find_in_catalogue().
[[nodiscard]] std::optional<CatalogueEntry> look_up(const Mapping& mapping, const Digest& digest);

}  // namespace moonpool
