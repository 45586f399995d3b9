#include "endpoint_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct place *place(const struct endpoint_file *file, uint32_t index)
{
	return (void *) (file->bytes + FILE_PLACES + FILE_STRIDE * index);
}

void put(struct endpoint_file *file, size_t offset, uint64_t value)
{
	memcpy(file->bytes + offset, &value, sizeof(value));
}

void file_make(struct endpoint_file *file, int process, const char *what)
{
	int fd;

	if (process < 0)
		snprintf(file->name, sizeof(file->name), "native_test.%d.%s",
			 (int) getpid(), what);
	else
		snprintf(file->name, sizeof(file->name), "%d:native_test.%s",
			 process, what);
	fd = shm_open(file->name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, FILE_BYTES));
	file->bytes = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			   fd, 0);
	CHECK(file->bytes != MAP_FAILED);
	close(fd);
	file->bytes[0] = 10;
	put(file, 168, FILE_PLACES);
	put(file, 176, FILE_NAME);
	strcpy((char *) file->bytes + FILE_NAME, file->name);
	for (uint32_t i = 0; i < FILE_COUNT; i++)
		place(file, i)->id = -1;
}

void file_remove(struct endpoint_file *file)
{
	munmap(file->bytes, FILE_BYTES);
	shm_unlink(file->name);
}

void meet(const struct endpoint_file *file, uint32_t index, const void *region)
{
	*place(file, index) =
		(struct place) {.id = index,
				.name_sent = 1,
				.local_region = (uint64_t) (uintptr_t) region};
}

int ended_process(void)
{
	pid_t process = fork();

	if (!process)
		_exit(0);
	CHECK(process > 0 && waitpid(process, NULL, 0) == process);
	return process;
}
