/* A file in /dev/shm that looks like that of an endpoint of libfabric's shm
 * provider (2.5.1 and 2.6), as far as places.h is concerned. */
#ifndef FAB_TEST_ENDPOINT_FILE_H
#define FAB_TEST_ENDPOINT_FILE_H

#include "check.h"

#include <stddef.h>
#include <stdint.h>

enum {
	FILE_COUNT = 256,
	FILE_STRIDE = 64,
	FILE_PLACES = 4096 + 32,
	FILE_NAME = FILE_PLACES + FILE_COUNT * FILE_STRIDE,
	FILE_BYTES = FILE_NAME + 256,
};

/* As the provider has it. */
struct place {
	int64_t id;
	uint32_t sar_status;
	uint16_t name_sent;
	uint16_t ipc_valid;
	uint64_t local_region;
};

struct endpoint_file {
	char name[64];
	unsigned char *bytes;
};

/* Named after a process, or -1: after none, and after what it is for. */
void file_make(struct endpoint_file *file, int process, const char *what);
void file_remove(struct endpoint_file *file);

struct place *place(const struct endpoint_file *file, uint32_t index);
void put(struct endpoint_file *file, size_t offset, uint64_t value);
/* Fill a place, as that of one that is known and mapped here. */
void meet(const struct endpoint_file *file, uint32_t index, const void *region);

/* The number of a process that has ended. */
int ended_process(void);

#endif
