#include "core/timeline.h"

#include <algorithm>
#include <exception>

#include "core/file.h"
#include "core/json.h"

namespace lockstep {

Timeline::Span::Span(Stream& stream, std::string_view name, std::string_view kind) {
  if (stream.timeline() == nullptr) return;
  stream_ = &stream;
  exceptions_ = std::uncaught_exceptions();
  name_ = name;
  kind_ = kind;
  begin_ = stream.timeline()->mark(stream);
}

Timeline::Span::~Span() {
  if (stream_ == nullptr || stream_->timeline() == nullptr) return;
  if (std::uncaught_exceptions() > exceptions_) return;  // after a fault every call fails
  auto& timeline = *stream_->timeline();
  try {
    const auto end = timeline.mark(*stream_);
    timeline.entries_.push_back({stream_->name(), std::move(name_), std::move(kind_), begin_, end});
  } catch (const Error&) {
    // A kernel fault; the next call that may throw reports it too.
  }
}

std::size_t Timeline::mark(Stream& stream) {
  if (stream.is_cuda() && !base_) {
    base_ = stream.record_timed();
    base_->synchronize();
    base_seconds_ = std::chrono::duration<double>(Clock::now() - begin_).count();
  }
  auto* mark = &marks_.emplace_back();
  if (stream.is_cuda())
    mark->event = stream.record_timed();
  else
    stream.enqueue([mark](Stream&) { mark->at = Clock::now(); });
  return marks_.size() - 1;
}

double Timeline::seconds(const Mark& mark) const {
  if (mark.at == Clock::time_point()) return base_seconds_ + mark.event.seconds_since(*base_);
  return std::chrono::duration<double>(mark.at - begin_).count();
}

std::vector<Timeline::Done> Timeline::spans() const {
  std::vector<Done> done;
  for (const auto& entry : entries_)
    done.push_back({entry.row, entry.name, entry.kind, seconds(marks_[entry.begin]),
                    seconds(marks_[entry.end])});
  return done;
}

// developer.chrome: "Trace Event Format": X is a span, M names a process or a row; microseconds.
void Timeline::write(const std::filesystem::path& file, int rank) const {
  const auto named = [&](const char* what, int row, const std::string& name) {
    return Json::Object{{"name", what},
                        {"ph", "M"},
                        {"pid", rank},
                        {"tid", row},
                        {"args", Json::Object{{"name", name}}}};
  };
  std::vector<std::string> rows;
  Json::Array events{named("process_name", 0, str("rank ", rank))};
  for (const auto& span : spans()) {
    const auto found = std::find(rows.begin(), rows.end(), span.row);
    const int row = static_cast<int>(found - rows.begin());
    if (found == rows.end()) {
      rows.push_back(span.row);
      events.emplace_back(named("thread_name", row, span.row));
    }
    events.emplace_back(Json::Object{{"name", span.name},
                                     {"cat", span.kind},
                                     {"ph", "X"},
                                     {"pid", rank},
                                     {"tid", row},
                                     {"ts", 1e6 * span.begin},
                                     {"dur", 1e6 * (span.end - span.begin)}});
  }
  write_text(file, Json(Json::Object{{"displayTimeUnit", "ms"}, {"traceEvents", events}}).dump());
}

}  // namespace lockstep
