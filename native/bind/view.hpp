// A read-only buffer over a held object.
#pragma once

#include <nanobind/nanobind.h>

#include "io/node_client.hpp"

namespace moonpool {

// The hold ends when release() was called (or the View was collected) and the last exporter is gone.
class View {
 public:
  explicit View(std::shared_ptr<HeldBytes> held) : held_(std::move(held)) {}
  void release();
  [[nodiscard]] bool released() const { return released_; }
  // Throws std::logic_error after release() and in a forked child, where the memory is not.
  [[nodiscard]] const HeldBytes& held() const;
  void exported() { ++export_count_; }
  void unexported();

 private:
  std::shared_ptr<HeldBytes> held_;
  std::size_t export_count_ = 0;
  bool released_ = false;
};

void bind_view(nanobind::module_& module);

}  // namespace moonpool
