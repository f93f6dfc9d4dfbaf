// The storage account of the Functions host. It has the host's keys, the state of its timer, and
// the package that runs.

@description('Name of the account.')
param name string

@description('The Azure region.')
param location string

@description('Tags of the account.')
param tags object

@description('How the data is kept: Standard_LRS or Standard_ZRS.')
param sku string

@description('Whether only private endpoints lead to the account.')
param private bool

@description('Where the plan wants the site\'s content: share or container. Azure Files takes no identity from the platform, so with a share the account takes keys.')
@allowed([
  'share'
  'container'
])
param content string

@description('Name of that share or container.')
param contentName string

var hasShare = content == 'share'

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: sku
  }
  properties: {
    accessTier: 'Hot'
    allowSharedKeyAccess: hasShare
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: private ? 'Disabled' : 'Enabled'
  }
}

resource fileService 'Microsoft.Storage/storageAccounts/fileServices@2025-06-01' = if (hasShare) {
  parent: account
  name: 'default'
}

resource share 'Microsoft.Storage/storageAccounts/fileServices/shares@2025-06-01' = if (hasShare) {
  parent: fileService
  name: contentName
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
}

resource container 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = if (!hasShare) {
  parent: blobService
  name: contentName
  properties: {
    publicAccess: 'None'
  }
}
