// Timeline records when streams ran which spans. A stream with a timeline (Stream::set_timeline)
// has a row in it; without one a span costs one comparison.
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

  // Span covers the stream's work that is enqueued during the span's lifetime.
  class Span {
   public:
    //   kind: category of the span: "component", "unit", or the name of a group of ranks
    Span(Stream& stream, std::string_view name, std::string_view kind);
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span();

   private:
    Stream* stream_ = nullptr;
    int exceptions_ = 0;  // uncaught exceptions at the start
    std::string name_, kind_;
    std::size_t begin_ = 0;
  };

  struct Done {
    std::string row, name, kind;  // row: the stream's name
    double begin, end;            // seconds since the timeline was created
  };
  // Call it after the streams have finished their work, and before they are destroyed.
  std::vector<Done> spans() const;
  // Writes the spans in Chrome's format (chrome://tracing, Perfetto), with a process for the rank
  // and a row for each stream.
  void write(const std::filesystem::path& file, int rank) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point at{};
    Event event;  // CUDA streams only
  };
  struct Entry {
    std::string row, name, kind;
    std::size_t begin, end;  // marks
  };
  std::size_t mark(Stream& stream);
  double seconds(const Mark& mark) const;

  Clock::time_point begin_;
  std::deque<Mark> marks_;  // a deque, so that pointers to marks stay valid
  std::vector<Entry> entries_;
  std::optional<Event> base_;  // GPU event at base_seconds_
  double base_seconds_ = 0;
};

}  // namespace lockstep
