// The whole test framework of the native core: named cases, expectations that print where and what, a seed.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <random>
#include <source_location>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moonpool::test {

struct Case {
  std::string_view name;
  std::function<void()> body;
};

inline int failure_count = 0;

inline void fail(std::string_view what, const std::source_location& where) {
  ++failure_count;
  std::cerr << where.file_name() << ':' << where.line() << ": " << what << '\n';
}

inline void expect(bool holds, std::string_view what = "expectation failed",
                   const std::source_location& where = std::source_location::current()) {
  if (!holds) fail(what, where);
}

template <class Left, class Right>
void expect_equal(const Left& left, const Right& right, std::string_view what = "",
                  const std::source_location& where = std::source_location::current()) {
  if (left == right) return;
  std::ostringstream text;
  text << what << (what.empty() ? "" : ": ");
  if constexpr (requires { text << left << right; }) {
    text << left << " is not " << right;
  } else {
    text << "values differ";
  }
  fail(text.str(), where);
}

// MOONPOOL_SEED replays a failure; otherwise every run draws its own. Printed when a test fails.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("MOONPOOL_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  }();
  return value;
}

// Runs all cases and returns the exit code of the test program.
inline int run(const std::vector<Case>& cases) {
  for (const auto& [name, body] : cases) {
    const int before = failure_count;
    try {
      body();
    } catch (const std::exception& error) { fail(error.what(), std::source_location::current()); }
    if (failure_count != before) std::cerr << "FAILED " << name << " (replay with MOONPOOL_SEED=" << seed() << ")\n";
  }
  if (failure_count == 0) std::cout << cases.size() << " cases passed\n";
  return failure_count == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace moonpool::test
