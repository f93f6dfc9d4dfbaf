// Everything that tiney needs in Azure, in one resource group. docs/deployment.md says how to
// deploy it.
//
// plan chooses where the executable runs:
//   Y1   Windows Consumption: a function app; its cost depends on the requests
//   F1   Free: a Windows web app without the Functions host, which does not run on that plan
//   FC1  Flex Consumption: a function app on Linux
//   B1, P0v3, P1v3  Basic and Premium: a web app as on F1, but with machines of its own, or a
//        container on Linux
// The names of the site and of its own resources contain the plan. So another plan in the same
// group gives another site beside the first one, with the same data.
targetScope = 'resourceGroup'

@description('Where the executable runs: Y1 (Windows Consumption), F1 (Free, a web app), FC1 (Flex Consumption), B1 (Basic, a web app), P0v3 or P1v3 (Premium, a web app).')
@allowed([
  'Y1'
  'F1'
  'FC1'
  'B1'
  'P0v3'
  'P1v3'
])
param plan string = 'Y1'

@description('What the names of all resources start with: a letter first, then lower-case letters and digits.')
@minLength(2)
@maxLength(8)
param name string = 'tiney'

@description('The Azure region.')
param location string = resourceGroup().location

@description('A second Azure region with a site over the same data, behind the same Front Door. It takes frontDoor, and neither F1 nor privateNetwork. Empty: none.')
param secondLocation string = ''

@description('Tags of all resources.')
param tags object = {
  application: 'tiney'
}

// These are the settings of the handler. docs/settings.md says more about each. A test compares
// their defaults and limits with the code.

@description('SHORTURL_TABLE_NAME: the table of links. The names of all tables but two begin with it.')
@minLength(3)
@maxLength(49)
param shortUrlTableName string = 'ShortUrls'

@description('EXPIRYINDEX_TABLE_NAME: the table of links by their expiry.')
@minLength(3)
@maxLength(63)
param expiryIndexTableName string = 'ShortUrlsExpiryIndex'

@description('URLINDEX_TABLE_NAME: the table that leads from a long URL to its link.')
@minLength(3)
@maxLength(63)
param urlIndexTableName string = 'UrlIndex'

@description('TABLE_SECONDARY: the tables\' copy in the second region, which is read if the first one fails. Empty: that of the account, if dataRedundancy is Standard_RAGRS or Standard_RAGZRS; false: none.')
param tableSecondary string = ''

@description('GC_BLOB_LOCK_CONTAINER: the container of the reaper\'s lock. Lower-case letters, digits and single hyphens.')
@minLength(3)
@maxLength(63)
param lockContainerName string = 'locks'

@description('GC_BLOB_LOCK_BLOB: the blob whose lease is the reaper\'s lock.')
@minLength(1)
@maxLength(256)
param lockBlobName string = 'expiry-reaper.lock'

@description('GC_BUFFER_SECONDS: how long an expired link is kept before it is reaped.')
@minValue(0)
@maxValue(2592000)
param gcBufferSeconds int = 0

@description('GC_MAX_SECONDS: how long one run of the reaper may take. On Y1 the platform ends it after 300 seconds.')
@minValue(1)
@maxValue(1800)
param gcMaxSeconds int = 240

@description('GC_PAGE_SIZE: how many expiry rows the reaper holds in memory.')
@minValue(1)
@maxValue(1000)
param gcPageSize int = 1000

@description('BaseUrl: the start of every short URL, without a slash at its end. Empty: https:// and the custom domain, Front Door\'s host name or the site\'s own, the first of these that there is.')
param baseUrl string = ''

@description('HOME_URL: where / leads. Empty: to the form.')
@maxLength(4096)
param homeUrl string = ''

@description('UNKNOWN_URL: where a browser that asks for an unknown alias is sent. Empty: it gets a page. {alias} and {domain} are replaced.')
@maxLength(4096)
param unknownUrl string = ''

@description('GONE_URL: the same for expired and deleted links.')
@maxLength(4096)
param goneUrl string = ''

@description('DefaultTtlDays: the lifetime of a link, in days, if the request has none.')
@minValue(1)
@maxValue(36500)
param defaultTtlDays int = 30

@description('ANONYMOUS_TTL_SECONDS: the same in seconds, which wins. Both are for links without an owner; an owner\'s never expire unless the request says so.')
@minValue(60)
@maxValue(3153600000)
param anonymousTtlSeconds int = defaultTtlDays * 86400

@description('MaxTtlDays: the longest lifetime of a link without an owner, in days.')
@minValue(1)
@maxValue(36500)
param maxTtlDays int = 365

@description('MAX_TTL_SECONDS: the same in seconds. The shorter of the two applies.')
@minValue(60)
@maxValue(3153600000)
param maxTtlSeconds int = 7776000

@description('SHORTEN_ACCESS: who may shorten, anyone or owners only: those who sign in or have an API key. Spammers find a service that lets anyone.')
@allowed([
  'anyone'
  'owners'
])
param shortenAccess string = 'owners'

@description('DOMAINS_ACCESS: who may make links of a domain in domains, anyone (whom SHORTEN_ACCESS lets) or owners only.')
@allowed([
  'anyone'
  'owners'
])
param domainsAccess string = 'anyone'

@description('EXTRA_SCHEMES: what owners may shorten beside http and https, such as mailto,tel,sms,msteams.')
param extraSchemes string = ''

@description('ADMIN_KEY: the key that may do everything and makes the first API keys, 32 characters or more, at least 8 of them different. Empty: there is none.')
@secure()
@maxLength(1024)
param adminKey string = ''

@description('OIDC_ISSUER: the provider that owners sign in with, by OpenID Connect. Empty: owners have API keys only.')
param oidcIssuer string = ''

@description('OIDC_CLIENT_ID: the application at that provider whose ID tokens are taken.')
@maxLength(200)
param oidcClientId string = ''

@description('OIDC_ADMIN_ROLE: the role in an ID token that makes its bearer an admin.')
@minLength(1)
@maxLength(200)
param oidcAdminRole string = 'admin'

@description('OIDC_GROUPS_CLAIM: the claim with the groups of an ID token\'s bearer, such as groups or roles. Empty: there are no groups.')
@maxLength(200)
param oidcGroupsClaim string = ''

@description('OIDC_SCOPES: what signing in asks the provider for, openid among it.')
@minLength(1)
@maxLength(200)
param oidcScopes string = 'openid profile'

@description('OIDC_API_AUDIENCE: the audience of access tokens, such as those of assistants, which are taken beside ID tokens. Empty: none are. Not oidcClientId.')
@maxLength(200)
param oidcApiAudience string = ''

@description('OIDC_API_SCOPE: the scope that an access token must have. Empty: it needs none.')
@maxLength(200)
param oidcApiScope string = ''

@description('OIDC_SUBJECT_CLAIM: the claim of a token that names its owner. Another claim makes other owners.')
@minLength(1)
@maxLength(200)
param oidcSubjectClaim string = 'sub'

@description('DELETED_KEEP_SECONDS: how long a deleted link can be restored.')
@minValue(1)
@maxValue(31536000)
param deletedKeepSeconds int = 604800

@description('TOMBSTONE_DAYS: how long an alias responds 410, and stays taken, once its link was removed.')
@minValue(0)
@maxValue(3650)
param tombstoneDays int = 30

@description('CHANGES_SECONDS: how often an instance in use asks what others have changed. 0: never, and edits show when caches forget.')
@minValue(0)
@maxValue(10)
param changesSeconds int = 5

@description('CLICKS: what is counted of clicks. full: also referrers, countries, browsers and visitors; totals: their number; off: nothing.')
@allowed([
  'full'
  'totals'
  'off'
])
param clicks string = 'full'

@description('CLICKS_FLUSH_SECONDS: how often an instance writes the clicks that it has counted. Those since then are lost if it is killed.')
@minValue(1)
@maxValue(300)
param clicksFlushSeconds int = 10

@description('CLICKS_KEEP_DAYS: how many days of clicks are kept. Totals stay as long as their link.')
@minValue(3)
@maxValue(3650)
param clicksKeepDays int = 400

@description('CLIENT_ADDRESS_HEADER: the header with the addresses of clients. Empty: that of Azure\'s front end or, with Front Door, of that. Set it for another proxy, if nobody can reach the site but through it.')
@maxLength(100)
param clientAddressHeader string = ''

@description('CLIENT_ADDRESS_HOPS: how many proxies add to that header. Both headers of Azure have one address.')
@minValue(0)
@maxValue(10)
param clientAddressHops int = 1

@description('DOMAIN_HEADER: the header with the host that a client has asked for. Empty: with Front Door that of its rule, else none. Set it for another cache in front that overwrites it, if nobody can reach the site but through that.')
@maxLength(100)
param domainHeader string = ''

@description('PUBLIC_STATS: whether anyone may ask for the statistics of the whole service, and not only an admin.')
param publicStats bool = true

@description('SITE_NAME: what pages call the service.')
@minLength(1)
@maxLength(50)
param siteName string = 'tiney'

@description('SITE_NOTICE: what stands on every page, such as: Privacy: https://example.com/privacy.')
@maxLength(200)
param siteNotice string = ''

@description('MCP: whether assistants may call /api/mcp with an API key, on or off.')
@allowed([
  'on'
  'off'
])
param mcp string = 'on'

@description('RATE_SHORTEN_PER_MINUTE: how many links one address may make at once, and then per minute. 0: any number.')
@minValue(0)
@maxValue(1000000)
param rateShortenPerMinute int = 30

@description('RATE_UNKNOWN_PER_MINUTE: how many links that do not exist one address may ask for at once, and then per minute. 0: any number.')
@minValue(0)
@maxValue(1000000)
param rateUnknownPerMinute int = 60

@description('RATE_API_PER_MINUTE: how many calls of the API one owner may make at once, and then per minute. 0: any number.')
@minValue(0)
@maxValue(1000000)
param rateApiPerMinute int = 300

@description('RATE_REDIRECT_PER_MINUTE: how many redirects and previews one address gets at once, and then per minute. 0: any number.')
@minValue(0)
@maxValue(1000000)
param rateRedirectPerMinute int = 0

@description('RATE_PROBES_PER_DAY: how many aliases of others one owner may ask about at once by dry runs and claims, and then per day. 0: any number.')
@minValue(0)
@maxValue(1000000)
param rateProbesPerDay int = 1000

@description('ALIAS_LENGTH: characters of a new alias.')
@minValue(4)
@maxValue(32)
param aliasLength int = 6

@description('ALIAS_CASE: whether capitals make another alias. insensitive cannot be taken back.')
@allowed([
  'sensitive'
  'insensitive'
])
param aliasCase string = 'sensitive'

@description('CACHE_ENABLED: false makes every redirect read the table.')
param cacheEnabled bool = true

@description('CACHE_SIZE_MB: memory for cached links.')
@minValue(1)
@maxValue(1024)
param cacheSizeMB int = 10

@description('CACHE_DURATION_SECONDS: how long a link is served without asking the table.')
@minValue(1)
@maxValue(86400)
param cacheDurationSeconds int = 900

@description('CACHE_NEGATIVE_SECONDS: how long "no such link" is cached.')
@minValue(0)
@maxValue(3600)
param cacheNegativeSeconds int = 60

@description('CACHE_STALE_SECONDS: how much longer a cached link is served while the table is unavailable.')
@minValue(0)
@maxValue(86400)
param cacheStaleSeconds int = 3600

@description('REDIRECT_MAX_AGE_SECONDS: how long a cache in front may keep a redirect. With 0, Front Door caches nothing.')
@minValue(0)
@maxValue(31536000)
param redirectMaxAgeSeconds int = 0

@description('HSTS_SECONDS: for how long browsers use https alone for the hosts of https domains. 0: they are not told to.')
@minValue(0)
@maxValue(63072000)
param hstsSeconds int = 31536000

@description('LOG_LEVEL: from which level on the handler logs.')
@allowed([
  'debug'
  'info'
  'warn'
  'error'
])
param logLevel string = 'info'

@description('TELEMETRY_SAMPLING_PERCENT: how many of a hundred operations are sent as dependencies and requests. Failures, metrics and events are always sent.')
@minValue(1)
@maxValue(100)
param telemetrySamplingPercent int = 100

@description('TELEMETRY_CLIENT_IP: whether a request that the handler itself records carries the caller\'s address.')
param telemetryClientIp bool = false

// These parameters are for the platform.

@description('How the links are kept: Standard_LRS in one place, Standard_ZRS in three zones, the others in a second region too. Choose it at the first deployment: no later one can add zones to an account, or take them away. The account is the same for every plan in the group.')
@allowed([
  'Standard_LRS'
  'Standard_ZRS'
  'Standard_GRS'
  'Standard_RAGRS'
  'Standard_GZRS'
  'Standard_RAGZRS'
])
param dataRedundancy string = 'Standard_LRS'

@description('A storage account that is there already and has the tables, in place of the one that is made here. The identity needs Storage Table Data Contributor on it (docs/deployment.md).')
param tableAccountName string = ''

@description('Whether each write and delete in the tables and the lock\'s container is logged with who did it. A new link is three writes.')
param logStorageWrites bool = false

@description('Days that logs and telemetry are kept. 30 cost nothing extra.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

@description('Gigabytes of logs and telemetry taken per day, a bound on their cost. Past it nothing is recorded until the next day, and an alert says so.')
@minValue(1)
@maxValue(1000)
param logDailyCapGB int = 1

@description('FC1: memory of an instance, in MB.')
@allowed([
  512
  2048
  4096
])
param instanceMemoryMB int = 512

@description('Whether the account of the links has a lock: nobody can delete it before deleting the lock. To make one takes the role Owner.')
param deleteLock bool = false

@description('FC1: whether the site reaches its storage accounts through a virtual network, and nobody else reaches them. It takes a group without sites on other plans.')
param privateNetwork bool = false

@description('Y1, FC1, P0v3 and P1v3: how many instances there may be in a region, a bound on the cost. Y1 has 200 at most, P0v3 and P1v3 have 30.')
@minValue(1)
@maxValue(1000)
param maximumInstanceCount int = startsWith(plan, 'P') ? 3 : 40

@description('B1, P0v3 and P1v3: a container image, such as myregistry.azurecr.io/tiney:1.0, which runs on Linux. The identity needs AcrPull on a registry of Azure (docs/deployment.md). Empty: a package, which runs on Windows.')
param image string = ''

@description('Y1, F1, B1, P0v3 and P1v3: the address of a release\'s packages, such as https://github.com/OWNER/REPOSITORY/releases/download/v1.0.0. The site runs the package of its plan from there, and fetches it at each start: the release must be immutable. Empty: the one that is uploaded.')
param packagesUrl string = ''

@description('FC1: how many requests an instance gets at once before another is started. Left to Azure, an instance of 512 MB gets 4.')
@minValue(1)
@maxValue(1000)
param perInstanceConcurrency int = 100

@description('Y1 and FC1: how the Functions host\'s own storage is kept, Standard_LRS in one place or Standard_ZRS in three zones. As with dataRedundancy, no later deployment can change it.')
@allowed([
  'Standard_LRS'
  'Standard_ZRS'
])
param hostRedundancy string = 'Standard_LRS'

@description('FC1, P0v3 and P1v3: whether the instances are spread over zones, and the host\'s storage with them, which no later deployment can change. FC1 then keeps instances ready that cost money day and night, the others run two at least.')
param zoneRedundant bool = false

@description('FC1: how a new package or setting reaches the instances. Recreate ends them all and starts new ones. RollingUpdate replaces them in batches, so no request waits; the platform may still call it a preview.')
@allowed([
  'Recreate'
  'RollingUpdate'
])
param siteUpdateStrategy string = 'Recreate'

@description('Y1: how the Functions host reaches its own storage: by the account\'s key, or by the identity, with which hosts were seen to fail until a restart. The plan needs the key in any case.')
@allowed([
  'key'
  'identity'
])
param hostStorageAccess string = plan == 'Y1' ? 'key' : 'identity'

@description('Y1: which key of its host\'s storage the site uses. Change it to rotate the other one (docs/operations.md).')
@allowed([
  'key1'
  'key2'
])
param hostStorageKey string = 'key1'

@description('Whether /api/health is asked for from outside. Every run from every place is paid for.')
param availabilityTest bool = true

@description('Seconds between two runs of the availability test from one place.')
@allowed([
  300
  600
  900
])
param availabilityTestFrequencySeconds int = 900

@description('Where the availability test runs, by the names that Application Insights has for its places. Its alert needs two of them to fail.')
@minLength(2)
@maxLength(16)
param availabilityTestPlaces array = [
  'us-va-ash-azr'
  'us-ca-sjc-azr'
  'emea-nl-ams-azr'
]

@description('Whether the alerts are on, that of the availability test among them. On F1 the site and its reaper sleep while there are no requests, which would raise them.')
param alertsEnabled bool = true

@description('Who gets the alerts, an e-mail address. Empty: alerts are seen in the portal only.')
param alertEmail string = ''

@description('A monthly budget for the resource group, in the subscription\'s currency, which warns alertEmail. Without that, without budgetStartDate, or with 0 there is none.')
@minValue(0)
param budgetAmount int = 0

@description('The first day of the month from which the budget counts, such as 2026-12-01: that of its creation. Keep it in later deployments: Azure refuses another date.')
param budgetStartDate string = ''

@description('A domain of your own, such as go.example.com. Its DNS records must be there first (docs/deployment.md). Not on F1, unless Front Door stands before it.')
param customDomain string = ''

@description('DOMAINS: more domains, with links of their own on each, such as go.example.org. They are bound as customDomain is.')
@maxLength(100)
param domains array = []

@description('Whether customDomain and domains are bound to the site. false: they lead to another site, or to a cache in front that these files do not make.')
param bindDomains bool = true

@description('The domains that have their certificate on a site, as SITE/DOMAIN, which stay as they are. Adding one again would take its certificate off for a minute. deploy.sh finds them.')
param domainsWithCertificate array = []

@description('Front Door before the site, with a cache, a rate limit, and a site that takes requests from it alone. None: no Front Door.')
@allowed([
  'None'
  'Standard_AzureFrontDoor'
  'Premium_AzureFrontDoor'
])
param frontDoor string = 'None'

@description('Front Door: whether its logs of requests and of probes are kept beside those of its firewall. They have the addresses of clients and the aliases that they asked for.')
param frontDoorLogs bool = false

@description('Front Door: requests per minute and address.')
@minValue(10)
param requestsPerMinute int = 600

@description('Front Door: new links per minute and address. Below about 200, some requests beyond the limit get through.')
@minValue(1)
param shortensPerMinute int = 60

@description('Front Door, with secondLocation: seconds between two probes of a site from one place. Every place probes, and each probe makes nine storage calls.')
@minValue(1)
@maxValue(255)
param probeSeconds int = 240

var suffix = uniqueString(resourceGroup().id, name)
var hasFrontDoor = frontDoor != 'None'
var isWebApp = plan != 'Y1' && plan != 'FC1'
var isPremium = startsWith(plan, 'P')

// A deployment replaces all settings. So a value that the handler refuses at its start would take
// down a working site, and a switch that the plan ignores would be noticed only when it matters.
// Both are refused before anything changes. A test compares this part with what the handler
// refuses. The test runs it as JavaScript, so it must also be valid JavaScript.
//
// join(split(text, characters), '') returns the characters of a text except the given ones.
var digits = split('0 1 2 3 4 5 6 7 8 9', ' ')
var letters = split('a b c d e f g h i j k l m n o p q r s t u v w x y z', ' ')
var alphanumeric = concat(digits, letters)
var headerName = concat(alphanumeric, split('! # $ % & \' * + - . ^ _ ` | ~', ' '))
var printable = concat(headerName, split('" ( ) , / : ; < = > ? @ [ \\ ] { }', ' '))
var linkTables = ['', 'ByOwner', 'Keys', 'State', 'Clicks', 'ClickTotals']
var tables = concat(
  [expiryIndexTableName, urlIndexTableName],
  map(linkTables, table => join([shortUrlTableName, table], ''))
)
var clicksTable = toLower(join([shortUrlTableName, 'Clicks'], ''))
var lowerTables = map(tables, table => toLower(table))
var withoutClicks = map(lowerTables, table => replace(table, clicksTable, ''))
var tablesOfClicks = filter(withoutClicks, rest => empty(join(split(rest, digits), '')))
var adminKeyCharacters = map(range(0, length(adminKey)), i => substring(adminKey, i, 1))
var differentInAdminKey = length(union(adminKeyCharacters, []))

var oddInName = join(split(toLower(name), alphanumeric), '')
var oddInTables = join(split(join(lowerTables, ''), alphanumeric), '')
var oddInAccount = join(split(toLower(tableAccountName), alphanumeric), '')
var oddInContainer = join(split(lockContainerName, concat(alphanumeric, ['-'])), '')
var oddInBlob = join(split(toLower(lockBlobName), concat(alphanumeric, ['.', '_', '-'])), '')
var oddInHeader = join(split(toLower(clientAddressHeader), headerName), '')
var oddInAdminKey = join(split(toLower(adminKey), printable), '')
var signInNames = join([oidcIssuer, oidcClientId, oidcGroupsClaim], '')
var oddInSignIn = join(split(toLower(signInNames), printable), '')
var tokenNames = join([oidcApiScope, oidcSubjectClaim], '')
var oddInTokens = join(split(toLower(tokenNames), printable), '')
var scopes = split(oidcScopes, ' ')
var isAudienceTaken = !empty(oidcApiAudience) && oidcApiAudience == oidcClientId
var oddInScopes = join(split(toLower(join(scopes, '')), printable), '')
var oddInAudience = join(split(toLower(oidcApiAudience), concat(printable, [' '])), '')
var oddInRole = join(split(toLower(oidcAdminRole), concat(printable, [' '])), '')
var oddInDomainHeader = join(split(toLower(domainHeader), headerName), '')
var urls = [baseUrl, oidcIssuer, tableSecondary]
var oddUrls = filter(urls, url => length(split(url, ['?', '#', '@', '\\', ' '])) > 1)

// The certificate of a domain takes 64 characters at most. Names that Azure gave are no domains:
// one of them is BaseUrl's by default.
var lowerDomains = map(domains, one => toLower(one))
var hosts = concat(empty(customDomain) ? [] : [toLower(customDomain)], lowerDomains)
var oddInHosts = join(split(join(hosts, ''), concat(alphanumeric, ['-', '.'])), '')
var labels = split(join(hosts, '.'), '.')
var oddEnds = filter(labels, label => startsWith(label, '-') || endsWith(label, '-'))
var hasOddLabels = !empty(hosts) && (!empty(oddEnds) || contains(labels, ''))
var longHosts = filter(hosts, host => length(host) > 64)
var lastLabels = map(hosts, host => last(split(host, '.')))
var addresses = filter(lastLabels, label => empty(join(split(label, digits), '')))
var dotless = filter(hosts, host => !contains(host, '.'))
var areNoHosts = !empty(oddInHosts) || hasOddLabels || !empty(addresses) || !empty(dotless)
var ofSites = filter(hosts, host => endsWith(host, '.azurewebsites.net'))
var ofFrontDoors = filter(hosts, host => endsWith(host, '.azurefd.net'))
var isOverLimit = frontDoor == 'Standard_AzureFrontDoor' && length(hosts) > 100

// In a URL, the authority (host and port) stands between the second slash and one of these.
var endsOfAuthority = ['/', '?', '#']
var fallbacks = filter([homeUrl, unknownUrl, goneUrl], url => !empty(url))
var withTls = filter(fallbacks, url => startsWith(url, 'https://'))
var withoutTls = filter(fallbacks, url => startsWith(url, 'http://'))
var authorities = map(fallbacks, url => split(join([toLower(url), '///'], ''), endsOfAuthority)[2])
var oddAuthorities = filter(authorities, one => length(split(one, ['@', '{', '}'])) > 1)
var targets = map(authorities, one => first(split(one, ':')))
var oddFallbacks = filter(fallbacks, url => length(split(url, ['\\', ' '])) > 1)
var bare = map(fallbacks, url => replace(replace(url, '{alias}', ''), '{domain}', ''))
var oddPlaces = filter(bare, url => length(split(url, ['{', '}'])) > 1)
var areNoUrls = length(withTls) + length(withoutTls) < length(fallbacks) || contains(targets, '')
var baseHost = first(split(split(join([toLower(baseUrl), '///'], ''), '/')[2], ':'))

var schemes = filter(split(toLower(extraSchemes), [',', ' ']), scheme => !empty(scheme))
var oddInSchemes = join(split(join(schemes, ''), concat(alphanumeric, ['+', '.', '-'])), '')
var oddSchemes = filter(schemes, scheme => !contains(letters, first(scheme)))
var unsafeSchemes = concat(
  split('javascript data vbscript file blob about filesystem view-source intent jar', ' '),
  split('chrome resource ms-msdt search-ms ms-officecmd ms-appinstaller', ' ')
)

var lines = split(join([siteName, siteNotice], ' '), ['\n', '\r', '\t'])

var isKeyOfDevelopment = adminKey == 'not-secret-and-for-development-only'
var tablesBeginWith = map(tables, table => first(table))
var hasOddHyphens = contains(join(['', lockContainerName, ''], '-'), '--')
var beginsOddBlob = !contains(alphanumeric, toLower(first(lockBlobName)))
var endsOddBlob = !contains(alphanumeric, toLower(last(lockBlobName)))
var isNoUrl = !startsWith(baseUrl, 'https://') && !startsWith(baseUrl, 'http://')
var hasNoHost = isNoUrl || endsWith(baseUrl, '://')
var isNoIssuer = !startsWith(oidcIssuer, 'https://') || endsWith(oidcIssuer, '://')
var isSecondaryWord = contains(['', 'true', 'false'], toLower(tableSecondary))
var isNoSecondary = !isSecondaryWord && !startsWith(tableSecondary, 'https://')
var isFirstDay = length(budgetStartDate) >= 10 && endsWith(take(budgetStartDate, 10), '-01')
var isInOneZone = !contains(['FC1', 'P0v3', 'P1v3'], plan)
var takesNoImage = !contains(['B1', 'P0v3', 'P1v3'], plan)
var takesNoDomain = plan == 'F1' && frontDoor == 'None' && bindDomains
var isSingle = plan == 'F1' || privateNetwork
var firstRegion = toLower(replace(location, ' ', ''))
var otherRegion = toLower(replace(secondLocation, ' ', ''))

var refused = concat(
  contains(digits, first(name)) ? ['name begins with a letter'] : [],
  !empty(oddInName) ? ['name has letters and digits only'] : [],
  length(union(lowerTables, ['tables'])) <= length(tables) ? ['each table has its own name'] : [],
  !empty(oddInTables) ? ['names of tables have letters and digits only'] : [],
  !empty(intersection(digits, tablesBeginWith)) ? ['names of tables begin with a letter'] : [],
  length(tablesOfClicks) > 1 ? ['no other table is named as those of clicks, with digits'] : [],
  !empty(oddInAccount) ? ['tableAccountName has letters and digits only'] : [],
  isNoSecondary ? ['tableSecondary is empty, true, false or an https URL'] : [],
  !empty(oddInContainer) ? ['lockContainerName is lower-case letters, digits and hyphens'] : [],
  hasOddHyphens ? ['lockContainerName has single hyphens, none of them at its ends'] : [],
  !empty(oddInBlob) ? ['lockBlobName has letters, digits, dots, hyphens and underscores only'] : [],
  beginsOddBlob || endsOddBlob ? ['lockBlobName begins and ends with a letter or a digit'] : [],
  !empty(baseUrl) && hasNoHost ? ['baseUrl begins with https:// and a host'] : [],
  !empty(oddUrls) ? ['URLs have no user name, query, fragment, backslash or space'] : [],
  areNoHosts ? ['customDomain and domains are names of hosts'] : [],
  !empty(longHosts) ? ['customDomain and domains have 64 characters at most'] : [],
  length(union(hosts, [])) < length(hosts) ? ['no domain comes twice, or is customDomain'] : [],
  contains(lowerDomains, baseHost) ? ['no domain is the host of baseUrl'] : [],
  !empty(ofSites) || !empty(ofFrontDoors) ? ['customDomain and domains are your own'] : [],
  isOverLimit ? ['Standard_AzureFrontDoor has 100 domains, customDomain among them'] : [],
  areNoUrls ? ['homeUrl, unknownUrl and goneUrl begin with https:// and a host'] : [],
  !empty(oddFallbacks) ? ['homeUrl, unknownUrl and goneUrl have no backslash or space'] : [],
  !empty(oddPlaces) ? ['URLs have braces around alias and domain alone'] : [],
  !empty(oddAuthorities) ? ['hosts in URLs have no user name, {alias} or {domain}'] : [],
  contains(homeUrl, '{alias}') ? ['homeUrl has no {alias}'] : [],
  !empty(intersection(targets, hosts)) ? ['homeUrl, unknownUrl and goneUrl lead elsewhere'] : [],
  contains(targets, baseHost) ? ['homeUrl, unknownUrl and goneUrl do not lead to baseUrl'] : [],
  !empty(oddInSchemes) ? ['extraSchemes are letters, digits, +, - and .'] : [],
  !empty(oddSchemes) ? ['extraSchemes begin with a letter'] : [],
  !empty(intersection(schemes, ['http', 'https'])) ? ['extraSchemes lacks http and https'] : [],
  !empty(intersection(schemes, unsafeSchemes)) ? ['extraSchemes has an unsafe one'] : [],
  !empty(adminKey) && length(adminKey) < 32 ? ['adminKey has 32 characters or more'] : [],
  !empty(adminKey) && differentInAdminKey < 8 ? ['adminKey has 8 different characters'] : [],
  !empty(oddInAdminKey) ? ['adminKey is printable ASCII without spaces'] : [],
  isKeyOfDevelopment ? ['adminKey is not that of local.settings.json'] : [],
  empty(oidcIssuer) != empty(oidcClientId) ? ['oidcIssuer and oidcClientId go together'] : [],
  !empty(oidcIssuer) && isNoIssuer ? ['oidcIssuer begins with https:// and a host'] : [],
  !empty(oddInSignIn) ? ['oidcIssuer, oidcClientId and oidcGroupsClaim are printable ASCII'] : [],
  !empty(oddInTokens) ? ['oidcApiScope and oidcSubjectClaim are printable ASCII'] : [],
  !empty(oddInAudience) ? ['oidcApiAudience is printable ASCII'] : [],
  trim(oidcApiAudience) != oidcApiAudience ? ['oidcApiAudience has no space at its ends'] : [],
  isAudienceTaken ? ['oidcApiAudience is not oidcClientId'] : [],
  length(split(oidcApiScope, ['"', '\\'])) > 1 ? ['oidcApiScope has no quote or backslash'] : [],
  !empty(oddInScopes) ? ['oidcScopes are printable ASCII'] : [],
  !contains(scopes, 'openid') ? ['oidcScopes has openid'] : [],
  contains(scopes, '') ? ['oidcScopes has single spaces, none of them at its ends'] : [],
  !empty(oddInRole) ? ['oidcAdminRole is printable ASCII'] : [],
  trim(oidcAdminRole) != oidcAdminRole ? ['oidcAdminRole has no space at its ends'] : [],
  !empty(oddInHeader) ? ['clientAddressHeader is the name of a header'] : [],
  toLower(clientAddressHeader) == 'forwarded' ? ['clientAddressHeader is not Forwarded'] : [],
  !empty(oddInDomainHeader) ? ['domainHeader is the name of a header'] : [],
  length(lines) > 1 ? ['siteName and siteNotice are one line each, without tabs'] : [],
  privateNetwork && plan != 'FC1' ? ['privateNetwork is for FC1'] : [],
  zoneRedundant && isInOneZone ? ['zoneRedundant is for FC1, P0v3 and P1v3'] : [],
  !empty(image) && takesNoImage ? ['image is for B1, P0v3 and P1v3'] : [],
  siteUpdateStrategy != 'Recreate' && plan != 'FC1' ? ['siteUpdateStrategy is for FC1'] : [],
  hostStorageAccess == 'key' && plan != 'Y1' ? ['hostStorageAccess is key on Y1 alone'] : [],
  hostStorageKey != 'key1' && plan != 'Y1' ? ['hostStorageKey is for Y1'] : [],
  frontDoorLogs && frontDoor == 'None' ? ['frontDoorLogs takes frontDoor'] : [],
  !empty(packagesUrl) && !startsWith(packagesUrl, 'https://') ? ['packagesUrl begins with https://'] : [],
  !empty(hosts) && takesNoDomain ? ['customDomain and domains on F1 take frontDoor'] : [],
  !bindDomains && frontDoor != 'None' ? ['bindDomains is true with frontDoor'] : [],
  !empty(secondLocation) && frontDoor == 'None' ? ['secondLocation takes frontDoor'] : [],
  !empty(secondLocation) && isSingle ? ['secondLocation takes no F1 and no privateNetwork'] : [],
  otherRegion == firstRegion ? ['secondLocation is another region'] : [],
  !empty(budgetStartDate) && !isFirstDay ? ['budgetStartDate is the first of a month'] : []
)
var prefix = empty(refused) ? toLower(name) : fail(join(refused, '; '))

// A plan is either for Windows or for Linux, and cannot change. So a container gets a site and a
// plan of its own. The names in a second region depend on the region.
var siteKind = empty(image) ? toLower(plan) : '${toLower(plan)}-image'
var regions = concat([location], empty(secondLocation) ? [] : [otherRegion])
var sites = [
  for (region, i) in regions: {
    location: region
    name: '${prefix}-${siteKind}-${i == 0 ? suffix : uniqueString(resourceGroup().id, name, region)}'
    zoneRedundant: zoneRedundant && i == 0 // the second region may have no zones
    hostRedundancy: i > 0 ? 'Standard_LRS' : zoneRedundant ? 'Standard_ZRS' : hostRedundancy
    hostStorageName: '${prefix}${toLower(plan)}${i == 0 ? suffix : uniqueString(resourceGroup().id, name, region)}'
  }
]
var firstSite = sites[0].name

// What-if leaves out resources whose names or conditions depend on the output of a module, or on a
// property that Azure sets. So modules get these names and IDs instead, and dependsOn says what has
// to be there first. The assignments of roles are in modules of their own: their names contain the
// ID of the identity, which Azure sets.
var dataStorageName = '${prefix}${suffix}'
var insightsName = '${prefix}-insights-${suffix}'
var insightsId = resourceId('Microsoft.Insights/components', insightsName)
var workspaceName = '${prefix}-logs-${suffix}'
var workspaceId = resourceId('Microsoft.OperationalInsights/workspaces', workspaceName)
var actionGroupName = '${insightsName}-alerts'
var actionGroupId = empty(alertEmail) ? '' : resourceId('Microsoft.Insights/actionGroups', actionGroupName)
var networkName = '${prefix}-network-${suffix}'
var siteSubnetId = resourceId('Microsoft.Network/virtualNetworks/subnets', networkName, 'site')
var endpointSubnetId = resourceId('Microsoft.Network/virtualNetworks/subnets', networkName, 'endpoints')
var edgeName = '${prefix}-edge-${suffix}'

// Where the host's storage has the content of the site: in a share on Y1, in a container on FC1.
var hostContentName = plan == 'Y1' ? 'content' : 'packages'

// The domains belong to Front Door if there is one. There, customDomain has a name without dots. The
// others' names end in what no other domain has, since a.b.example and a-b.example differ in dots.
var siteDomains = hasFrontDoor || !bindDomains ? [] : hosts
var frontDoorDomains = map(hasFrontDoor ? hosts : [], host => {
  name: host == toLower(customDomain) ? replace(host, '.', '-') : '${replace(host, '.', '-')}-${uniqueString(host)}'
  host: host
})

// publicUrl is the public address if it is not the site's own name.
var publicUrl = !empty(baseUrl)
  ? baseUrl
  : !empty(customDomain) ? 'https://${customDomain}' : hasFrontDoor ? 'https://${edge!.outputs.endpointHostName}' : ''

// The sender of the chosen header overwrites a client's own value. X-Azure-ClientIP would not be
// safe: Front Door takes it from the client's X-Forwarded-For.
var addressHeader = !empty(clientAddressHeader) ? clientAddressHeader : hasFrontDoor ? 'X-Azure-SocketIP' : 'CLIENT-IP'

// Front Door's rule overwrites a client's own value of this header.
var hostHeader = !empty(domainHeader) ? domainHeader : hasFrontDoor ? 'X-Tiney-Host' : ''

// The handler gets a copy only if its instances can read it.
var tableCopy = !empty(tableSecondary)
  ? tableSecondary
  : empty(tableAccountName) && startsWith(dataRedundancy, 'Standard_RA') ? 'true' : ''

// The handler reaches the tables and the lock with the identity, so no setting contains a key.
// modules/site-settings.bicep adds BaseUrl and the connection string of Application Insights, since
// they are known there.
var settings = {
  TABLE_CONNECTION__accountName: empty(tableAccountName) ? dataStorageName : tableAccountName
  TABLE_CONNECTION__credential: 'managedidentity'
  TABLE_CONNECTION__clientId: identity.properties.clientId
  GC_BLOB_LOCK_CONNECTION__accountName: dataStorageName
  GC_BLOB_LOCK_CONNECTION__credential: 'managedidentity'
  GC_BLOB_LOCK_CONNECTION__clientId: identity.properties.clientId
  TABLE_SECONDARY: tableCopy
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identity.properties.clientId};Authorization=AAD'
  SHORTURL_TABLE_NAME: shortUrlTableName
  EXPIRYINDEX_TABLE_NAME: expiryIndexTableName
  URLINDEX_TABLE_NAME: urlIndexTableName
  GC_BLOB_LOCK_CONTAINER: lockContainerName
  GC_BLOB_LOCK_BLOB: lockBlobName
  GC_BUFFER_SECONDS: string(gcBufferSeconds)
  GC_MAX_SECONDS: string(gcMaxSeconds)
  GC_PAGE_SIZE: string(gcPageSize)
  OTHER_HOSTS: hasFrontDoor ? edge!.outputs.endpointHostName : ''
  DOMAINS: join(domains, ',')
  DOMAIN_HEADER: hostHeader
  HOME_URL: homeUrl
  UNKNOWN_URL: unknownUrl
  GONE_URL: goneUrl
  DefaultTtlDays: string(defaultTtlDays)
  ANONYMOUS_TTL_SECONDS: string(anonymousTtlSeconds)
  MaxTtlDays: string(maxTtlDays)
  MAX_TTL_SECONDS: string(maxTtlSeconds)
  SHORTEN_ACCESS: shortenAccess
  DOMAINS_ACCESS: domainsAccess
  EXTRA_SCHEMES: extraSchemes
  ADMIN_KEY: adminKey
  OIDC_ISSUER: oidcIssuer
  OIDC_CLIENT_ID: oidcClientId
  OIDC_ADMIN_ROLE: oidcAdminRole
  OIDC_GROUPS_CLAIM: oidcGroupsClaim
  OIDC_SCOPES: oidcScopes
  OIDC_API_AUDIENCE: oidcApiAudience
  OIDC_API_SCOPE: oidcApiScope
  OIDC_SUBJECT_CLAIM: oidcSubjectClaim
  DELETED_KEEP_SECONDS: string(deletedKeepSeconds)
  TOMBSTONE_DAYS: string(tombstoneDays)
  CHANGES_SECONDS: string(changesSeconds)
  CLICKS: clicks
  CLICKS_FLUSH_SECONDS: string(clicksFlushSeconds)
  CLICKS_KEEP_DAYS: string(clicksKeepDays)
  CLIENT_ADDRESS_HEADER: addressHeader
  CLIENT_ADDRESS_HOPS: string(clientAddressHops)
  PUBLIC_STATS: string(publicStats)
  MCP: mcp
  SITE_NAME: siteName
  SITE_NOTICE: siteNotice
  RATE_SHORTEN_PER_MINUTE: string(rateShortenPerMinute)
  RATE_UNKNOWN_PER_MINUTE: string(rateUnknownPerMinute)
  RATE_API_PER_MINUTE: string(rateApiPerMinute)
  RATE_REDIRECT_PER_MINUTE: string(rateRedirectPerMinute)
  RATE_PROBES_PER_DAY: string(rateProbesPerDay)
  ALIAS_LENGTH: string(aliasLength)
  ALIAS_CASE: aliasCase
  CACHE_ENABLED: string(cacheEnabled)
  CACHE_SIZE_MB: string(cacheSizeMB)
  CACHE_DURATION_SECONDS: string(cacheDurationSeconds)
  CACHE_NEGATIVE_SECONDS: string(cacheNegativeSeconds)
  CACHE_STALE_SECONDS: string(cacheStaleSeconds)
  REDIRECT_MAX_AGE_SECONDS: string(redirectMaxAgeSeconds)
  HSTS_SECONDS: string(hstsSeconds)
  LOG_LEVEL: logLevel
  TELEMETRY_SAMPLING_PERCENT: string(telemetrySamplingPercent)
  TELEMETRY_CLIENT_IP: string(telemetryClientIp)
}

// These settings of the Functions host are for the two plans that have it.
//
// By default, an outage of the host's own storage of about 30 seconds ends the host process that
// holds the timer's lock, and with it the handler and its cache. With these retries, the process
// has survived 100 seconds. The price is that a host that starts in an outage starts to listen only
// 2 to 4 seconds after the outage has ended.
//
// Without AzureWebJobsDisableHomepage, the host responds to / with a page of its own for every
// method except GET and HEAD.
var hostSettings = {
  AzureWebJobsDisableHomepage: 'true'
  AzureWebJobsStorage__retry__maxRetries: '40'
  AzureWebJobsStorage__retry__maxDelay: '00:00:05'
}

// Behind Front Door, the site responds only to this one Front Door. Deployment uses another
// address, the scm site, which stays open to callers with the right to deploy.
var accessRestrictions = hasFrontDoor
  ? [
      {
        name: 'Front Door'
        priority: 100
        action: 'Allow'
        tag: 'ServiceTag'
        ipAddress: 'AzureFrontDoor.Backend'
        headers: {
          'x-azure-fdid': [
            edge!.outputs.frontDoorId
          ]
        }
      }
    ]
  : []
var accessOtherwise = hasFrontDoor ? 'Deny' : 'Allow'

// The identity is a resource of its own, not the site's. So it has its roles before the site
// exists, and the site never starts without them.
resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: '${prefix}-identity-${suffix}'
  location: location
  tags: tags
}

module monitoring 'modules/monitoring.bicep' = {
  name: '${name}-monitoring'
  params: {
    name: insightsName
    workspaceName: workspaceName
    actionGroupName: actionGroupName
    location: location
    tags: tags
    retentionDays: logRetentionDays
    dailyCapGB: logDailyCapGB
    alertEmail: alertEmail
  }
}

module monitoringRoles 'modules/monitoring-roles.bicep' = {
  name: '${name}-monitoring-roles'
  params: {
    applicationInsightsName: insightsName
    #disable-next-line what-if-short-circuiting
    principalId: identity.properties.principalId
  }
  dependsOn: [
    monitoring
  ]
}

module dataStorage 'modules/data-storage.bicep' = {
  name: '${name}-data-storage'
  params: {
    name: dataStorageName
    location: location
    tags: tags
    sku: dataRedundancy
    tables: tables
    lockContainerName: lockContainerName
    workspaceId: workspaceId
    logWrites: logStorageWrites
    private: privateNetwork
    locked: deleteLock
  }
  dependsOn: [
    monitoring
  ]
}

module dataStorageRoles 'modules/data-storage-roles.bicep' = {
  name: '${name}-data-storage-roles'
  params: {
    accountName: dataStorageName
    lockContainerName: lockContainerName
    #disable-next-line what-if-short-circuiting
    principalId: identity.properties.principalId
  }
  dependsOn: [
    dataStorage
  ]
}

module network 'modules/network.bicep' = if (privateNetwork) {
  name: '${name}-network'
  params: {
    name: networkName
    location: location
    tags: tags
  }
}

module dataEndpoints 'modules/private-endpoints.bicep' = if (privateNetwork) {
  name: '${name}-data-endpoints'
  params: {
    accountName: dataStorageName
    services: startsWith(dataRedundancy, 'Standard_RA')
      ? [
          'blob'
          'table'
          'table_secondary'
        ]
      : [
          'blob'
          'table'
        ]
    subnetId: endpointSubnetId
    location: location
    tags: tags
  }
  dependsOn: [
    dataStorage
    network
  ]
}

module edge 'modules/front-door.bicep' = if (hasFrontDoor) {
  name: '${name}-front-door'
  params: {
    name: edgeName
    policyName: '${prefix}waf${suffix}'
    sku: frontDoor
    tags: tags
    domains: frontDoorDomains
    requestsPerMinute: requestsPerMinute
    shortensPerMinute: shortensPerMinute
    accessLogs: frontDoorLogs
    workspaceId: workspaceId
  }
  dependsOn: [
    monitoring
  ]
}

module hostStorage 'modules/host-storage.bicep' = [
  for site in sites: if (!isWebApp) {
    name: '${site.name}-host-storage'
    params: {
      name: site.hostStorageName
      location: site.location
      tags: tags
      sku: site.hostRedundancy
      content: plan == 'Y1' ? 'share' : 'container'
      contentName: hostContentName
      private: privateNetwork
    }
  }
]

module hostStorageRoles 'modules/host-storage-roles.bicep' = [
  for site in sites: if (!isWebApp && hostStorageAccess == 'identity') {
    name: '${site.name}-host-storage-roles'
    params: {
      accountName: site.hostStorageName
      #disable-next-line what-if-short-circuiting
      principalId: identity.properties.principalId
    }
    dependsOn: [
      hostStorage
    ]
  }
]

// A private network is for one site.
module hostEndpoints 'modules/private-endpoints.bicep' = if (privateNetwork) {
  name: '${firstSite}-host-endpoints'
  params: {
    accountName: sites[0].hostStorageName
    services: [
      'blob'
      'queue'
      'table'
    ]
    subnetId: endpointSubnetId
    location: location
    tags: tags
  }
  dependsOn: [
    hostStorage
    network
  ]
}

module consumption 'modules/site-consumption.bicep' = [
  for site in sites: if (plan == 'Y1') {
    name: '${site.name}-consumption'
    params: {
      name: site.name
      planName: '${site.name}-plan'
      hostStorageName: site.hostStorageName
      location: site.location
      tags: tags
      identityId: identity.id
      clientId: identity.properties.clientId
      settings: union(settings, hostSettings)
      baseUrl: publicUrl
      accessRestrictions: accessRestrictions
      accessOtherwise: accessOtherwise
      applicationInsightsName: insightsName
      maximumInstanceCount: min(maximumInstanceCount, 200)
      package: empty(packagesUrl) ? '1' : '${packagesUrl}/tiney-windows-386.zip'
      hostStorageAccess: hostStorageAccess
      hostStorageKey: hostStorageKey
      shareName: hostContentName
    }
    // The roles come before the site, so it never starts without them.
    dependsOn: [
      monitoringRoles
      dataStorageRoles
      hostStorage
      hostStorageRoles
    ]
  }
]

module web 'modules/site-web.bicep' = [
  for site in sites: if (isWebApp) {
    name: '${site.name}-web'
    params: {
      name: site.name
      planName: '${site.name}-plan'
      location: site.location
      tags: tags
      sku: plan
      image: image
      package: empty(packagesUrl) ? '1' : '${packagesUrl}/tiney-webapp-windows-${plan == 'F1' ? '386' : 'amd64'}.zip'
      zoneRedundant: site.zoneRedundant && isPremium
      maximumInstanceCount: isPremium ? min(maximumInstanceCount, 30) : 1
      identityId: identity.id
      clientId: identity.properties.clientId
      settings: settings
      baseUrl: publicUrl
      accessRestrictions: accessRestrictions
      accessOtherwise: accessOtherwise
      applicationInsightsName: insightsName
      workspaceId: workspaceId
    }
    dependsOn: [
      monitoringRoles
      dataStorageRoles
    ]
  }
]

module flex 'modules/site-flex.bicep' = [
  for (site, i) in sites: if (plan == 'FC1') {
    name: '${site.name}-flex'
    params: {
      name: site.name
      planName: '${site.name}-plan'
      hostStorageName: site.hostStorageName
      location: site.location
      tags: tags
      // azd finds the site by this tag, whose value is in azure.yaml. Only one resource may have it.
      siteTags: i == 0
        ? {
            'azd-service-name': 'tiney'
          }
        : {}
      identityId: identity.id
      clientId: identity.properties.clientId
      settings: union(settings, hostSettings)
      baseUrl: publicUrl
      accessRestrictions: accessRestrictions
      accessOtherwise: accessOtherwise
      applicationInsightsName: insightsName
      instanceMemoryMB: instanceMemoryMB
      maximumInstanceCount: maximumInstanceCount
      perInstanceConcurrency: perInstanceConcurrency
      siteUpdateStrategy: siteUpdateStrategy
      zoneRedundant: site.zoneRedundant
      containerName: hostContentName
      subnetId: privateNetwork ? siteSubnetId : ''
    }
    // The site reads its package from the host's storage when it starts.
    dependsOn: [
      monitoringRoles
      dataStorageRoles
      hostStorage
      hostStorageRoles
      hostEndpoints
    ]
  }
]

var hostName = plan == 'Y1'
  ? consumption[0]!.outputs.defaultHostName
  : isWebApp ? web[0]!.outputs.defaultHostName : flex[0]!.outputs.defaultHostName
var verification = plan == 'Y1'
  ? consumption[0]!.outputs.domainVerification
  : isWebApp ? web[0]!.outputs.domainVerification : flex[0]!.outputs.domainVerification
var serviceUrl = plan == 'Y1'
  ? consumption[0]!.outputs.baseUrl
  : isWebApp ? web[0]!.outputs.baseUrl : flex[0]!.outputs.baseUrl
var frontDoorHost = hasFrontDoor ? edge!.outputs.endpointHostName : ''
var container = plan == 'FC1' ? flex[0]!.outputs.deploymentContainer : ''

module edgeRoute 'modules/front-door-route.bicep' = if (hasFrontDoor) {
  name: '${name}-front-door-route'
  params: {
    profileName: edgeName
    domains: frontDoorDomains
    siteNames: map(sites, site => site.name)
    probeSeconds: probeSeconds
    caches: redirectMaxAgeSeconds > 0
  }
  dependsOn: [
    edge
    consumption
    web
    flex
  ]
}

// A site takes one change of its host names at a time.
@batchSize(1)
module domain 'modules/domain.bicep' = [
  for host in siteDomains: {
    name: '${name}-domain-${uniqueString(host)}'
    params: {
      siteName: firstSite
      planName: '${firstSite}-plan'
      domain: host
      flex: plan == 'FC1'
      addDomain: !contains(domainsWithCertificate, '${firstSite}/${host}')
      siteHostName: hostName
      location: location
      tags: tags
    }
  }
]

module availability 'modules/availability.bicep' = if (availabilityTest) {
  name: '${name}-availability'
  params: {
    name: '${prefix}-health-${suffix}'
    url: '${serviceUrl}/api/health'
    places: availabilityTestPlaces
    frequencySeconds: availabilityTestFrequencySeconds
    alertEnabled: alertsEnabled
    applicationInsightsId: insightsId
    actionGroupId: actionGroupId
    location: location
    tags: tags
  }
  dependsOn: [
    monitoring
  ]
}

module alerts 'modules/alerts.bicep' = {
  name: '${name}-alerts'
  params: {
    name: prefix
    enabled: alertsEnabled
    applicationInsightsId: insightsId
    workspaceId: workspaceId
    siteNames: map(sites, site => site.name)
    storageNames: concat([dataStorageName], isWebApp ? [] : map(sites, site => site.hostStorageName))
    frontDoorName: length(sites) > 1 ? edgeName : ''
    actionGroupId: actionGroupId
    location: location
    tags: tags
  }
  dependsOn: [
    monitoring
    dataStorage
    edge
    consumption
    web
    flex
  ]
}

module workbook 'modules/workbook.bicep' = {
  name: '${name}-workbook'
  params: {
    name: guid(resourceGroup().id, name, 'workbook')
    applicationInsightsId: insightsId
    workspaceId: workspaceId
    location: location
    tags: tags
  }
  dependsOn: [
    monitoring
  ]
}

module budget 'modules/budget.bicep' = if (budgetAmount > 0 && !empty(budgetStartDate) && !empty(alertEmail)) {
  name: '${name}-budget'
  params: {
    name: '${prefix}-budget'
    amount: budgetAmount
    startDate: budgetStartDate
    email: alertEmail
  }
}

@description('The plan that was deployed.')
output plan string = plan

@description('The name of the function app or web app.')
output siteName string = firstSite

@description('The host name that Azure gave the site.')
output defaultHostName string = hostName

@description('The name of the site in the second region. Empty: there is none.')
output secondSiteName string = length(sites) > 1 ? sites[1].name : ''

@description('Its host name.')
output secondHostName string = length(sites) > 1 ? edgeRoute!.outputs.hostNames[1] : ''

@description('The container image that the sites run. Empty: they run a package.')
output image string = image

@description('The name of Front Door. Empty: there is none.')
output frontDoorName string = hasFrontDoor ? edgeName : ''

@description('The host name that Azure gave Front Door. Empty: there is none.')
output frontDoorHostName string = frontDoorHost

@description('The domains that are bound to the site.')
output siteDomains array = siteDomains

@description('What the TXT record asuid.DOMAIN of a domain of the site has to have.')
output domainVerification string = verification

@description('The start of every short URL.')
output baseUrl string = serviceUrl

@description('Whether alerts are on and nobody is told of them.')
output alertsReachNobody bool = alertsEnabled && empty(alertEmail)

@description('The storage account with the links.')
output dataStorageName string = dataStorageName

@description('The Application Insights component.')
output applicationInsightsName string = insightsName

@description('Its resource ID.')
output applicationInsightsId string = insightsId

@description('The resource ID of the workbook.')
output workbookId string = workbook.outputs.id

@description('FC1: the blob container, with its address, that the package is deployed to. Empty on the other plans.')
output deploymentContainer string = container
