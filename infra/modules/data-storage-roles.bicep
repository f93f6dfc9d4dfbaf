// The roles with which the site reads and writes links, and takes the reaper's lock.

@description('Name of the storage account.')
param accountName string

@description('Name of the lock\'s container.')
param lockContainerName string

@description('The identity that reads and writes.')
param principalId string

var roles = {
  'Storage Table Data Contributor': '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
}
var containerRoles = {
  'Storage Blob Data Contributor': 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
}

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: accountName
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' existing = {
  parent: account
  name: 'default'
}

resource lockContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' existing = {
  parent: blobService
  name: lockContainerName
}

resource accountRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    name: guid(account.id, principalId, role.value)
    scope: account
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]

// The identity needs no other blob than the lock's.
resource lockRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(containerRoles): {
    name: guid(lockContainer.id, principalId, role.value)
    scope: lockContainer
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]
