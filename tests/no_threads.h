// NoThreads: while it lives, the system starts no thread, for want of memory for its stack.
#pragma once

#include <pthread.h>

#include "core/error.h"

namespace lockstep::testing {

class NoThreads {
 public:
  NoThreads() {
    LOCKSTEP_CHECK(pthread_getattr_default_np(&before_) == 0, "no attributes of threads");
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    LOCKSTEP_CHECK(pthread_attr_setstacksize(&huge, std::size_t{1} << 60) == 0 &&
                       pthread_setattr_default_np(&huge) == 0,
                   "the stack of threads cannot be set");
    pthread_attr_destroy(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

}  // namespace lockstep::testing
