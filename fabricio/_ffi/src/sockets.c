#include "sockets.h"

#include "lane.h"

#include <dirent.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS "/proc/self/fd"

int fab_place_read(struct fab_place *place, const void *address, uint32_t bytes)
{
	struct sockaddr_in6 six;
	struct sockaddr_in four;
	sa_family_t family = AF_UNSPEC;

	memset(place, 0, sizeof(*place));
	if (bytes >= sizeof(family))
		memcpy(&family, address, sizeof(family));
	if (family == AF_INET && bytes >= sizeof(four)) {
		memcpy(&four, address, sizeof(four));
		memcpy(place->host, &four.sin_addr, sizeof(four.sin_addr));
		place->port = ntohs(four.sin_port);
		place->family = FAB_PLACE_IP4;
		return 0;
	}
	if (family == AF_INET6 && bytes >= sizeof(six)) {
		memcpy(&six, address, sizeof(six));
		memcpy(place->host, &six.sin6_addr, sizeof(six.sin6_addr));
		place->port = ntohs(six.sin6_port);
		place->family = FAB_PLACE_IP6;
		return 0;
	}
	return -FI_EINVAL;
}

/* Whether the provider listens there for the lane. */
static int socket_listens(const struct fab_lane *lane, int fd)
{
	struct sockaddr_storage address;
	struct fab_place mine, its;
	socklen_t bytes = sizeof(address);
	int listens = 0;
	socklen_t size = sizeof(listens);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) ||
	    !listens || getsockname(fd, (struct sockaddr *) &address, &bytes))
		return 0;
	return !fab_place_read(&its, &address, bytes) &&
	       !fab_place_read(&mine, lane->address, lane->address_bytes) &&
	       !memcmp(&its, &mine, sizeof(its));
}

/* 0 if it is connected. */
static int socket_read(struct fab_socket *socket, int fd)
{
	struct sockaddr_storage local, remote;
	socklen_t local_bytes = sizeof(local), remote_bytes = sizeof(remote);
	struct stat status;

	memset(socket, 0, sizeof(*socket));
	socket->fd = fd;
	if (fstat(fd, &status) ||
	    getsockname(fd, (struct sockaddr *) &local, &local_bytes) ||
	    getpeername(fd, (struct sockaddr *) &remote, &remote_bytes))
		return -1;
	socket->inode = status.st_ino;
	return fab_place_read(&socket->local, &local, local_bytes) ||
	       fab_place_read(&socket->remote, &remote, remote_bytes);
}

/* The numbers in an epoll set, in an array that the caller frees. */
static int set_read(int set, int **fds, uint32_t *count)
{
	char name[64], line[256];
	uint32_t capacity = 0;
	int fd, ret = 0;
	FILE *file;

	*fds = NULL;
	*count = 0;
	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", set);
	file = fopen(name, "re");
	if (!file)
		return -FI_ENOENT;
	while (!ret && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "tfd: %d", &fd) != 1)
			continue;
		if (*count == capacity) {
			int *more;

			capacity = capacity ? capacity * 2 : 64;
			more = realloc(*fds, capacity * sizeof(*more));
			if (!more) {
				ret = -FI_ENOMEM;
				break;
			}
			*fds = more;
		}
		(*fds)[(*count)++] = fd;
	}
	fclose(file);
	if (ret) {
		free(*fds);
		*fds = NULL;
	}
	return ret;
}

/* The same, if it is the set of the lane. */
static int set_read_own(const struct fab_lane *lane, int set, int **fds,
			uint32_t *count)
{
	int ret = set_read(set, fds, count);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < *count; i++) {
		if (socket_listens(lane, (*fds)[i]))
			return 0;
	}
	free(*fds);
	*fds = NULL;
	return -FI_ENOENT;
}

static int set_find(struct fab_lane *lane, int **fds, uint32_t *count)
{
	int ret = -FI_ENOENT;
	struct dirent *entry;
	DIR *folder;

	folder = opendir(DESCRIPTORS);
	if (!folder)
		return ret;
	while (ret == -FI_ENOENT && (entry = readdir(folder))) {
		char target[64] = "";
		int fd = atoi(entry->d_name);

		if (readlinkat(dirfd(folder), entry->d_name, target,
			       sizeof(target) - 1) < 0 ||
		    strcmp(target, "anon_inode:[eventpoll]") != 0)
			continue;
		ret = set_read_own(lane, fd, fds, count);
		if (!ret)
			lane->socket_set = fd;
	}
	closedir(folder);
	return ret;
}

/* The set of the lane, wherever it is. */
static int set_read_lane(struct fab_lane *lane, int **fds, uint32_t *count)
{
	int ret = -FI_ENOENT;

	if (lane->socket_set >= 0)
		ret = set_read_own(lane, lane->socket_set, fds, count);
	if (ret == -FI_ENOENT)
		ret = set_find(lane, fds, count);
	return ret;
}

static int place_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct fab_place));
}

int fab_sockets_list(struct fab_lane *lane, struct fab_socket **sockets,
		     uint32_t *count)
{
	struct fab_socket *found;
	uint32_t total = 0;
	int *fds = NULL;
	int ret;

	*sockets = NULL;
	*count = 0;
	ret = set_read_lane(lane, &fds, &total);
	if (ret)
		return ret;
	found = calloc(total, sizeof(*found));
	for (uint32_t i = 0; found && i < total; i++)
		*count += !socket_read(&found[*count], fds[i]);
	free(fds);
	if (!found)
		return -FI_ENOMEM;
	qsort(found, *count, sizeof(*found), place_compare);
	*sockets = found;
	return 0;
}

struct fab_socket *fab_sockets_find(struct fab_socket *sockets, uint32_t count,
				    const struct fab_place *remote)
{
	struct fab_socket *found = NULL;

	if (count)
		found = bsearch(remote, sockets, count, sizeof(*sockets),
				place_compare);
	while (found && found > sockets && !place_compare(found - 1, remote))
		found--;
	return found;
}

/* 1 if it is a socket that is open. */
static int number_read(struct fab_socket_number *number, int fd)
{
	struct stat status;

	if (fstat(fd, &status) || !S_ISSOCK(status.st_mode))
		return 0;
	number->fd = fd;
	number->inode = status.st_ino;
	return 1;
}

void fab_sockets_remember(struct fab_lane *lane,
			  struct fab_socket_numbers *numbers)
{
	uint32_t total;
	int *fds;

	memset(numbers, 0, sizeof(*numbers));
	if (set_read_lane(lane, &fds, &total))
		return;
	numbers->items = calloc(total, sizeof(numbers->items[0]));
	for (uint32_t i = 0; numbers->items && i < total; i++)
		numbers->count += (uint32_t) number_read(
			&numbers->items[numbers->count], fds[i]);
	free(fds);
}

void fab_sockets_close_forgotten(struct fab_socket_numbers *numbers)
{
	struct fab_socket_number now;

	for (uint32_t i = 0; i < numbers->count; i++) {
		if (number_read(&now, numbers->items[i].fd) &&
		    now.inode == numbers->items[i].inode)
			(void) close(now.fd);
	}
	free(numbers->items);
}
