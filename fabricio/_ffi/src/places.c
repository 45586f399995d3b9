#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	KNOWN_VERSION = 10, /* of libfabric 2.5.1 and 2.6 */
	PLACE_COUNT = 256,
};

/* The start of the file. Offsets are from there. */
struct header {
	uint8_t version;
	uint8_t other[167];
	uint64_t places_offset;
	uint64_t name_offset;
};

/* Any process that has the file mapped may write here; the neighbour of this
 * place does, and the lane's worker. */
struct fab_place {
	int64_t id; /* our place at the neighbour; -1: not known */
	uint32_t sar_status;
	uint16_t name_sent; /* the neighbour was told who we are */
	uint16_t ipc_valid;
	uint64_t region; /* where the neighbour's file is mapped, here */
};

struct fab_places {
	unsigned char *file; /* owned mapping; the provider has another one */
	size_t file_bytes;
	size_t stride;
	uint64_t places_offset;
	uint8_t missed[PLACE_COUNT]; /* not there when we looked last */
};

const char *fab_place_name(const char *address)
{
	const char *mark = strstr(address, "://");

	return mark ? mark + 3 : address;
}

static struct fab_place *place_at(const struct fab_places *places,
				  uint32_t index)
{
	return (void *) (places->file + places->places_offset +
			 places->stride * index);
}

static int place_is_new(const struct fab_place *place)
{
	return place->id == -1 && !place->sar_status && !place->name_sent &&
	       !place->ipc_valid && !place->region;
}

/* Read by the system, which says so where nothing is mapped. */
static int peek(uint64_t address, void *bytes, size_t length)
{
	struct iovec here = {bytes, length};
	struct iovec there = {(void *) (uintptr_t) address, length};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) ==
	       (ssize_t) length;
}

/* Q1. That memory can be read as fab_places_find does is tried too. */
static int places_are_known(struct fab_places *places, const char *name)
{
	const struct header *header = (const void *) places->file;
	char found[FAB_PLACE_NAME_BYTES];
	uint64_t bytes;

	if (places->file_bytes < sizeof(*header) ||
	    header->version != KNOWN_VERSION ||
	    header->name_offset <= header->places_offset ||
	    header->places_offset < sizeof(*header) ||
	    header->name_offset + FAB_PLACE_NAME_BYTES != places->file_bytes)
		return 0;
	bytes = header->name_offset - header->places_offset;
	places->places_offset = header->places_offset;
	places->stride = (size_t) (bytes / PLACE_COUNT);
	if (places->places_offset % 8 || bytes % PLACE_COUNT ||
	    places->stride % 64 ||
	    !peek((uintptr_t) places->file + header->name_offset, found,
		  sizeof(found)) ||
	    strncmp(found, name, sizeof(found)) != 0)
		return 0;
	for (uint32_t i = 0; i < PLACE_COUNT; i++) {
		if (!place_is_new(place_at(places, i)))
			return 0;
	}
	return 1;
}

struct fab_places *fab_places_open(const char *name)
{
	struct fab_places *places = calloc(1, sizeof(*places));
	struct stat status;
	int fd;

	if (!places)
		return NULL;
	places->file = MAP_FAILED;
	name = fab_place_name(name);
	fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
	if (fd >= 0 && !fstat(fd, &status) && status.st_size > 0) {
		places->file_bytes = (size_t) status.st_size;
		places->file = mmap(NULL, places->file_bytes,
				    PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	if (fd >= 0)
		close(fd);
	if (places->file != MAP_FAILED && places_are_known(places, name))
		return places;
	fab_places_close(places);
	return NULL;
}

void fab_places_close(struct fab_places *places)
{
	if (places && places->file != MAP_FAILED)
		munmap(places->file, places->file_bytes);
	free(places);
}

/* What the neighbour of this place is called, from its own file. */
static int place_read_name(const struct fab_place *place,
			   char name[FAB_PLACE_NAME_BYTES])
{
	struct header header;

	return place->region && peek(place->region, &header, sizeof(header)) &&
	       peek(place->region + header.name_offset, name,
		    FAB_PLACE_NAME_BYTES) &&
	       memchr(name, 0, FAB_PLACE_NAME_BYTES);
}

struct fab_place *fab_places_find(struct fab_places *places, const char *name)
{
	char theirs[FAB_PLACE_NAME_BYTES];

	name = fab_place_name(name);
	for (uint32_t i = 0; i < PLACE_COUNT; i++) {
		struct fab_place *place = place_at(places, i);

		if (place_read_name(place, theirs) && !strcmp(theirs, name))
			return place;
	}
	return NULL;
}

uint64_t fab_place_file(const char *name)
{
	int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
	struct stat status = {0};

	if (fd < 0)
		return 0;
	if (fstat(fd, &status))
		status.st_ino = 0;
	close(fd);
	return status.st_ino;
}

int fab_place_is_gone(const char *name, uint64_t file)
{
	/* The provider calls an endpoint by its process, first of all. */
	long process = strtol(name, NULL, 10);
	uint64_t found = fab_place_file(name);

	if (!found)
		return errno == ENOENT;
	return (file && found != file) ||
	       (process > 0 && kill((pid_t) process, 0) && errno == ESRCH);
}

struct fab_place *fab_places_gone(struct fab_places *places,
				  const struct fab_place *place,
				  char name[FAB_PLACE_NAME_BYTES])
{
	uint32_t i = 0;

	while (place && place_at(places, i++) != place)
		;
	for (; i < PLACE_COUNT; i++) {
		struct fab_place *found = place_at(places, i);
		int missed = place_read_name(found, name) &&
			     fab_place_is_gone(name, 0);
		int again = missed && places->missed[i];

		places->missed[i] = (uint8_t) missed;
		if (again)
			return found;
	}
	return NULL;
}

void fab_places_leave(struct fab_place *place)
{
	if (place)
		place->region = 0;
}

void fab_places_sweep(struct fab_places *places)
{
	for (uint32_t i = 0; i < PLACE_COUNT; i++) {
		struct fab_place *place = place_at(places, i);

		if (!place->region) {
			place->name_sent = 0;
			place->id = -1;
		}
	}
}
