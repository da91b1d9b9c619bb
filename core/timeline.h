// Timeline: what streams did when. A stream that was given one (Stream::set_timeline) gets a row of
// it; without one a span costs a comparison.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/stream.h"

namespace lockstep {

class Timeline {
 public:
  Timeline() : begin_(Clock::now()) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // From when the stream comes to what it is given next, until it has done what it was given.
  class Span {
   public:
    //   kind: of such spans together: "component", "unit", or the name of a group of ranks
    Span(Stream& stream, std::string_view name, std::string_view kind);
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span();

   private:
    Stream* stream_ = nullptr;
    int exceptions_ = 0;  // under way when it began
    std::string name_, kind_;
    std::size_t begin_ = 0;
  };

  struct Done {
    std::string row, name, kind;  // row: the stream's name
    double begin, end;            // seconds from when the timeline was made
  };
  // Once the streams have done all that they were given, and while they live.
  std::vector<Done> spans() const;
  // The same in Chrome's format (chrome://tracing, Perfetto): a process for the rank, a row for
  // each stream.
  void write(const std::filesystem::path& file, int rank) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point at{};
    Event event;  // of a CUDA stream
  };
  struct Entry {
    std::string row, name, kind;
    std::size_t begin, end;  // marks
  };
  std::size_t mark(Stream& stream);
  double seconds(const Mark& mark) const;

  Clock::time_point begin_;
  std::deque<Mark> marks_;  // they stay where they are
  std::vector<Entry> entries_;
  std::optional<Event> base_;  // of the GPU, and when that was
  double base_seconds_ = 0;
};

}  // namespace lockstep
