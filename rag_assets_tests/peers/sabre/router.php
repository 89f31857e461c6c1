<?php
/**
 * A Nextcloud in small for tests: sabre/dav, Nextcloud's own WebDAV library, over one SQLite file,
 * with fileids that survive moves, ETags that change up to the root, app passwords, mounted shares,
 * access lists of group folders, and the OCS endpoint that lists shares.
 *
 * Run as `php -S 127.0.0.1:<port> router.php` with PEER_FOLDER (peer.sqlite, requests.log) and
 * PEER_PREFIX (such as /cloud, or empty) in the environment.
 */
error_reporting(0);
require_once 'Sabre/autoload.php';

use Sabre\DAV;

const OC = '{http://owncloud.org/ns}';
const NC = '{http://nextcloud.org/ns}';

$folder = getenv('PEER_FOLDER');
$prefix = (string) getenv('PEER_PREFIX');
$uri = $_SERVER['REQUEST_URI'];
$line = $_SERVER['REQUEST_METHOD'] . ' ' . ($_SERVER['HTTP_DEPTH'] ?? '-') . ' ' . $uri . "\n";
file_put_contents("$folder/requests.log", $line, FILE_APPEND | LOCK_EX);

$db = new PDO("sqlite:$folder/peer.sqlite", null, null, [PDO::ATTR_TIMEOUT => 20]);
$db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
$db->setAttribute(PDO::ATTR_DEFAULT_FETCH_MODE, PDO::FETCH_ASSOC);
$db->exec('PRAGMA synchronous = OFF');

function rows(string $sql, array $values = []): array
{
    global $db;
    $statement = $db->prepare($sql);
    $statement->execute($values);
    return $statement->fetchAll();
}

function allowed(string $user, string $password): bool
{
    return (bool) rows('SELECT 1 FROM account WHERE user = ? AND password = ?', [$user, $password]);
}

/** A new ETag for a node and, as Nextcloud's propagator does, for all folders above it. */
function touched(int $id): void
{
    for (; $id; $id = (int) (rows('SELECT parent FROM node WHERE id = ?', [$id])[0]['parent'] ?? 0)) {
        rows('UPDATE node SET etag = ?, mtime = ? WHERE id = ?', [bin2hex(random_bytes(16)), time(), $id]);
    }
}

const COLUMNS = 'id, parent, name, is_folder, etag, mtime, acl, group_folder, forbidden, length(content) AS size';

/** The nodes of a folder; at the root of a user also what others shared with him. */
function children(array $row, string $user): array
{
    $found = rows('SELECT ' . COLUMNS . ' FROM node WHERE parent = ?', [$row['id']]);
    if (!$row['parent']) {
        $mounted = 'SELECT node FROM share WHERE owner != :u AND permissions & 1 AND ((share_type = 0 AND share_with = :u)'
            . ' OR (share_type = 1 AND share_with IN (SELECT name FROM membership WHERE user = :u)))';
        $found = array_merge($found, rows('SELECT ' . COLUMNS . " FROM node WHERE id IN ($mounted)", ['u' => $user]));
    }
    return $found;
}

/** The access rules of a node, or what its parents' come to. */
class AccessList extends DAV\Property
{
    public function __construct(private array $rules)
    {
    }

    public function serialize(DAV\Server $server, DOMElement $element)
    {
        $keys = ['mapping-type', 'mapping-id', 'mapping-display-name', 'mask', 'permissions'];
        foreach ($this->rules as [$type, $id, $mask, $permissions]) {
            $acl = $element->appendChild($element->ownerDocument->createElement('nc:acl'));
            foreach (array_combine($keys, [$type, $id, $id, $mask, $permissions]) as $key => $value) {
                $part = $acl->appendChild($element->ownerDocument->createElement("nc:acl-$key"));
                $part->appendChild($element->ownerDocument->createTextNode((string) $value));
            }
        }
    }
}

function properties(array $row, string $etag): array
{
    $known = [
        '{DAV:}getetag' => "\"$etag\"",
        OC . 'fileid' => $row['id'],
        OC . 'permissions' => $row['is_folder'] ? 'RGDNVCK' : 'RGDNVW',
        NC . 'mount-type' => '',
    ];
    static $groupFolders = null;
    $groupFolders ??= rows('SELECT count(*) AS n FROM node WHERE group_folder IS NOT NULL')[0]['n'];
    if (!$groupFolders) {
        return $known;
    }
    $above = [];
    for ($at = $row; $at && !$at['group_folder'];) {
        $at = rows('SELECT ' . COLUMNS . ' FROM node WHERE id = ?', [$at['parent']])[0] ?? null;
        $above[] = $at;
    }
    if ($at === null) {
        return $known;
    }
    $inherited = [];
    foreach (array_reverse($above) as $parent) {
        foreach (json_decode($parent['acl'] ?: '[]', true) as [$type, $id, $mask, $permissions]) {
            [, , $before, $granted] = $inherited["$type:$id"] ?? [null, null, 0, 0];
            $inherited["$type:$id"] = [$type, $id, $before | $mask, $granted & ~$mask | $permissions & $mask];
        }
    }
    $group = json_decode($at['group_folder'], true);
    return $known + [
        NC . 'acl-list' => $row['acl'] ? new AccessList(json_decode($row['acl'], true)) : null,
        NC . 'inherited-acl-list' => new AccessList(array_values($inherited)),
        NC . 'acl-enabled' => (string) $group['enabled'],
        NC . 'acl-can-manage' => (string) $group['can_manage'],
        NC . 'acl-base-permission' => $group['base'],
    ];
}

trait Stored
{
    public array $row;
    public string $user;

    public function getName()
    {
        return $this->row['name'];
    }

    public function getLastModified()
    {
        return (int) $this->row['mtime'];
    }

    public function setName($name)
    {
        rows('UPDATE node SET name = ? WHERE id = ?', [$name, $this->row['id']]);
        touched((int) $this->row['parent']);
    }

    public function delete()
    {
        foreach (rows('SELECT ' . COLUMNS . ' FROM node WHERE parent = ?', [$this->row['id']]) as $row) {
            stored($row, $this->user)->delete();
        }
        rows('DELETE FROM node WHERE id = ?', [$this->row['id']]);
        rows('DELETE FROM share WHERE node = ?', [$this->row['id']]);
        touched((int) $this->row['parent']);
    }

    public function updateProperties($mutations)
    {
        return false;
    }

    public function getProperties($names)
    {
        return properties($this->row, $this->etag());
    }
}

class StoredFile extends DAV\File implements DAV\IProperties
{
    use Stored;

    public function get()
    {
        if ($this->row['forbidden']) {
            throw new DAV\Exception\Forbidden('No read permission');
        }
        return rows('SELECT content FROM node WHERE id = ?', [$this->row['id']])[0]['content'];
    }

    public function put($data)
    {
        rows('UPDATE node SET content = CAST(? AS BLOB) WHERE id = ?', [stream_get_contents($data), $this->row['id']]);
        touched((int) $this->row['id']);
    }

    public function getSize()
    {
        return (int) $this->row['size'];
    }

    public function etag()
    {
        return $this->row['etag'];
    }

    public function getETag()
    {
        return '"' . $this->row['etag'] . '"';
    }
}

class StoredFolder extends DAV\Collection implements DAV\IProperties
{
    use Stored;

    public function getChildren()
    {
        return array_map(fn ($row) => stored($row, $this->user), children($this->row, $this->user));
    }

    public function getChild($name)
    {
        foreach (children($this->row, $this->user) as $row) {
            if ($row['name'] === $name) {
                return stored($row, $this->user);
            }
        }
        throw new DAV\Exception\NotFound("No $name");
    }

    /** Mounts have a part in it, as in Nextcloud. */
    public function etag()
    {
        if ($this->row['parent']) {
            return $this->row['etag'];
        }
        $mounted = array_filter(children($this->row, $this->user), fn ($row) => $row['parent'] != $this->row['id']);
        return $mounted ? md5($this->row['etag'] . '::' . implode('::', array_column($mounted, 'etag'))) : $this->row['etag'];
    }

    private function add($name, $isFolder, $content)
    {
        rows(
            'INSERT INTO node (parent, name, is_folder, content) VALUES (?, ?, ?, CAST(? AS BLOB))',
            [$this->row['id'], $name, $isFolder, $content]
        );
        touched((int) rows('SELECT last_insert_rowid() AS id')[0]['id']);
    }

    public function createFile($name, $data = null)
    {
        $this->add($name, 0, is_resource($data) ? stream_get_contents($data) : (string) $data);
    }

    public function createDirectory($name)
    {
        $this->add($name, 1, null);
    }
}

function stored(array $row, string $user): DAV\INode
{
    $node = $row['is_folder'] ? new StoredFolder() : new StoredFile();
    [$node->row, $node->user] = [$row, $user];
    return $node;
}

/** sabre/dav 1.8 moves by copying; Nextcloud keeps the node, its fileid and its ETag. */
class Tree extends DAV\ObjectTree
{
    public function move($from, $to)
    {
        [$folder, $name] = DAV\URLUtil::splitPath($to);
        $row = $this->getNodeForPath($from)->row;
        $parent = $this->getNodeForPath($folder)->row['id'];
        rows('UPDATE node SET name = ?, parent = ? WHERE id = ?', [$name, $parent, $row['id']]);
        touched((int) $row['parent']);
        touched((int) $parent);
        $this->markDirty('');
    }
}

class Accounts extends DAV\Auth\Backend\AbstractBasic
{
    protected function validateUserPass($user, $password)
    {
        return allowed($user, $password);
    }
}

/** Where a node lies among the files of a user; null when he does not see it. */
function path_for(int $id, string $user): ?string
{
    $path = '';
    while ($row = rows('SELECT ' . COLUMNS . ' FROM node WHERE id = ?', [$id])[0] ?? null) {
        if (!$row['parent']) {
            return $row['name'] === $user ? ($path ?: '/') : null;
        }
        $path = '/' . $row['name'] . $path;
        $root = rows('SELECT ' . COLUMNS . ' FROM node WHERE parent = 0 AND name = ?', [$user])[0];
        if (in_array($row['id'], array_column(children($root, $user), 'id'))) {
            return $path;
        }
        $id = (int) $row['parent'];
    }
    return null;
}

/** GET /ocs/v2.php/apps/files_sharing/api/v1/shares, as much of it as lists shares. */
function shares(string $user): array
{
    $mine = ($_GET['shared_with_me'] ?? '') !== 'true';
    $found = $mine
        ? rows('SELECT * FROM share WHERE owner = ?', [$user])
        : rows('SELECT * FROM share WHERE owner != :u AND ((share_type = 0 AND share_with = :u) OR (share_type = 1 AND'
            . ' share_with IN (SELECT name FROM membership WHERE user = :u)))', ['u' => $user]);
    $shares = [];
    foreach ($found as $share) {
        $shares[] = [
            'id' => (string) $share['id'],
            'share_type' => (int) $share['share_type'],
            'uid_owner' => $share['owner'],
            'permissions' => (int) $share['permissions'],
            'expiration' => $share['expiration'],
            'path' => path_for((int) $share['node'], $user),
            'file_source' => (int) $share['node'],
            'item_source' => (int) $share['node'],
            'share_with' => $share['share_type'] == 3 ? $share['password'] : $share['share_with'],
        ] + ($share['share_type'] == 3 ? ['password' => $share['password']] : []);
    }
    return $shares;
}

if (str_starts_with($uri, "$prefix/ocs/v2.php/apps/files_sharing/api/v1/shares")) {
    header('Content-Type: application/json; charset=utf-8');
    $user = $_SERVER['PHP_AUTH_USER'] ?? '';
    $status = match (true) {
        !allowed($user, $_SERVER['PHP_AUTH_PW'] ?? '') => 401,
        ($_SERVER['HTTP_OCS_APIREQUEST'] ?? '') !== 'true' => 412,
        default => 200,
    };
    http_response_code($status);
    $meta = ['status' => $status === 200 ? 'ok' : 'failure', 'statuscode' => $status, 'message' => ''];
    echo json_encode(['ocs' => ['meta' => $meta, 'data' => $status === 200 ? shares($user) : []]]);
    return;
}
if (!str_starts_with($uri, "$prefix/remote.php/dav/")) {
    header('Content-Type: text/html; charset=utf-8');
    echo '<!DOCTYPE html><html><head><title>Login</title></head><body><form>Login</form></body></html>';
    return;
}

$user = $_SERVER['PHP_AUTH_USER'] ?? '';
$own = rows('SELECT ' . COLUMNS . ' FROM node WHERE parent = 0 AND name = ?', [$user]);
$files = new DAV\SimpleCollection('files', array_map(fn ($row) => stored($row, $user), $own));
$server = new DAV\Server(new Tree(new DAV\SimpleCollection('root', [$files])));
$server->setBaseUri("$prefix/remote.php/dav/");
$server->xmlNamespaces['http://owncloud.org/ns'] = 'oc';
$server->xmlNamespaces['http://nextcloud.org/ns'] = 'nc';
$server->addPlugin(new DAV\Auth\Plugin(new Accounts(), 'Nextcloud'));
$writes = !in_array($_SERVER['REQUEST_METHOD'], ['GET', 'HEAD', 'PROPFIND', 'OPTIONS']);
$db->exec($writes ? 'BEGIN IMMEDIATE' : 'BEGIN');
$server->exec();
$db->exec('COMMIT');
