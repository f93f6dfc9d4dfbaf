// The storage account of the links and of the reaper's lock. It accepts only identities, no keys.

@description('Name of the account.')
param name string

@description('The Azure region.')
param location string

@description('Tags of the account.')
param tags object

@description('How the data is kept.')
param sku string

@description('Names of the tables.')
param tables array

@description('Name of the lock\'s container.')
param lockContainerName string

@description('The Log Analytics workspace.')
param workspaceId string

@description('Whether writes and deletes are logged.')
param logWrites bool

@description('Whether only private endpoints lead to the account.')
param private bool

@description('Whether nobody can delete the account before deleting its lock.')
param locked bool

var logs = [
  {
    category: 'StorageWrite'
    enabled: true
  }
  {
    category: 'StorageDelete'
    enabled: true
  }
]

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
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: private ? 'Disabled' : 'Enabled'
  }
}

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2025-06-01' = {
  parent: account
  name: 'default'
}

resource linkTables 'Microsoft.Storage/storageAccounts/tableServices/tables@2025-06-01' = [
  for table in tables: {
    parent: tableService
    name: table
  }
]

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
}

resource lockContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobService
  name: lockContainerName
  properties: {
    publicAccess: 'None'
  }
}

// This lock does not protect rows and tables: they are deleted through the data plane.
resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (locked) {
  name: 'links'
  scope: account
  properties: {
    level: 'CanNotDelete'
    notes: 'All links are here.'
  }
}

resource tableLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (logWrites) {
  name: 'writes'
  scope: tableService
  properties: {
    workspaceId: workspaceId
    logs: logs
  }
}

resource blobLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (logWrites) {
  name: 'writes'
  scope: blobService
  properties: {
    workspaceId: workspaceId
    logs: logs
  }
}
