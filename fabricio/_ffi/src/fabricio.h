/* What the loop side sees: every declaration that cffi reads, in order. */
#ifndef FABRICIO_H
#define FABRICIO_H

#include <stdint.h>

#include "../cdef/completion.h"
#include "../cdef/engine.h"
#include "../cdef/error.h"
#include "../cdef/info.h"
#include "../cdef/peer.h"
#include "../cdef/region.h"
#include "../cdef/topology.h"
#include "../cdef/transfer.h"

#endif
